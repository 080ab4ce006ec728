package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// errNothing is the error for files that contain no resource with reports.
var errNothing = fmt.Errorf("no resource with reports is in it: expected, in YAML or JSON, "+
	"%s of %s named %s, or a %s, or a List of such; unpack an archive first", strings.Join(contract.ResourceNames(), ", "),
	contract.OperatorGroup, contract.OperatorObject, contract.KMSHealths.Kind)

type reading struct {
	view.Snapshot
	found map[string]*unstructured.Unstructured // by kind, namespace and name
}

// ReadFiles reads a file or a folder; - is stdin. A folder is the output of a must-gather, or of
// oc adm inspect; files in it are recognized by their content. The snapshot's time is that of
// the newest report, or when a must-gather began, if that is later; now if neither is known.
func ReadFiles(name string, stdin io.Reader, now time.Time) (*view.Snapshot, error) {
	r := &reading{found: map[string]*unstructured.Unstructured{}}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		err = filepath.WalkDir(name+"/", r.visit) // with the slash, the folder itself may be a link
	case name == "-":
		err = r.parse(io.ReadAll(stdin))
	default:
		err = r.parse(os.ReadFile(name))
	}
	for _, id := range slices.Sorted(maps.Keys(r.found)) {
		r.Objects = append(r.Objects, r.found[id])
	}
	isResource := func(o *unstructured.Unstructured) bool { _, is := view.ResourceOf(o); return is }
	if err == nil && !slices.ContainsFunc(r.Objects, isResource) {
		err = errors.Join(append(r.Problems, errNothing)...)
	}
	if err != nil {
		return nil, fmt.Errorf("--from-file: %s: %w", filewatch.Shown(name), err)
	}
	r.Now = r.Began
	for _, o := range r.Objects {
		r.Now = rollup.Latest(r.Now, view.Newest(o))
	}
	r.Now = cmp.Or(r.Now, now)
	// Objects that are not in the files may exist in the cluster.
	r.FromFiles, r.FilesAge, r.OperatorUnread = true, max(0, now.Sub(r.Now)), true
	return &r.Snapshot, nil
}

var (
	// resources are those with reports, and groups their groups.
	resources = strings.Join(append(contract.ResourceNames(), contract.KMSHealths.Plural), "|")
	groups    = contract.OperatorGroup + "|" + contract.KMSHealths.Group
	// readable are the names of files that are read in a folder.
	readable = regexp.MustCompile(`(^|/)timestamp$|(^|/)kms-health/incomplete\.txt$|\.(ya?ml|json)$`)
	// notGathered are the resources with reports among the parts of a must-gather that failed, a line each.
	notGathered = regexp.MustCompile(`(?m)^(` + resources + `)\..*[^/\n]`)
	// ofGroup is the path of a resource of the groups in a must-gather. Such a file is parsed
	// whatever it contains: to ignore a broken one would hide a problem.
	ofGroup = regexp.MustCompile(`(^|/)(` + groups + `)/`)
	// wanted matches a file with objects that are used, if it is about KMS. Prometheus's data, which name this project,
	// too, are no objects.
	wanted = regexp.MustCompile(`\b(apiVersion"? *: *"?(` + groups + `)/|` +
		`kind"? *: *"?(ConfigMap|Deployment|Event|Lease|Pod)(List)?\b)`)
)

// visit reads a file of a folder. If that fails it is a problem of the snapshot.
func (r *reading) visit(at string, entry fs.DirEntry, err error) error {
	at = filepath.ToSlash(at) // which Windows reads, too
	switch {
	case err != nil:
	case entry.IsDir(), !readable.MatchString(at):
		return nil
	case !entry.Type().IsRegular():
		err = errors.New("is a link or no file; links are not followed")
	default:
		err = r.use(at)
	}
	if err != nil {
		r.Problems = append(r.Problems, fmt.Errorf("%s: %s", at, contract.Cut(err.Error(), 512))) // it may quote the file
	}
	return nil
}

// use reads one file of a folder. Those of a must-gather that are not wanted are thousands.
func (r *reading) use(at string) error {
	data, err := os.ReadFile(at)
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) } // faster than an expression
	switch {
	case path.Base(at) == "timestamp":
		r.timestamp(data)
	case path.Ext(at) == ".txt":
		for _, part := range notGathered.FindAllString(string(data), -1) {
			r.Problems = append(r.Problems, fmt.Errorf("%s was not gathered, or not all of it", part))
		}
	case ofGroup.MatchString(at), (has("kms") || has(contract.OperatorGroup+"/")) && wanted.Match(data):
		return r.parse(data, err)
	}
	return err
}

// timestamp reads when a must-gather began, which is the first line of its file: a time as
// Go prints it. A file with something else is ignored.
func (r *reading) timestamp(data []byte) {
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line) // date, time, offset, and the zone's name, not all of which Go reads
	began, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.Join(fields[:min(3, len(fields))], " "))
	if err == nil && (r.Began.IsZero() || began.Before(r.Began)) {
		r.Began = began
	}
}

// parse adds the objects of a file as it was read, from its documents and from Lists in them.
func (r *reading) parse(data []byte, err error) error {
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("is empty")
	}
	if err != nil {
		return err
	}
	text := bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))
	infos, err := resource.NewLocalBuilder().Unstructured().Stream(text, "").Flatten().Do().Infos()
	for _, info := range infos {
		r.add(info.Object.(*unstructured.Unstructured))
	}
	if err != nil {
		err = fmt.Errorf("is no resource in YAML or JSON, as kubectl get -o yaml prints it "+
			"(unpack an archive first): %w", err)
	}
	return err
}

// add adds an object. If it was found twice, as when data was gathered twice, the newer report counts.
func (r *reading) add(o *unstructured.Unstructured) {
	id := fmt.Sprintf("%s %s/%s", o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	if had := r.found[id]; had == nil || view.Newest(o).After(view.Newest(had)) {
		r.found[id] = o
	}
}
