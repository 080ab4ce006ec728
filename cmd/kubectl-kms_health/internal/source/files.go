package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

const maxFile = 64 << 20 // bounds what is read of one file, in bytes: a must-gather has logs of any size

type reading struct {
	view.Snapshot
	at     map[string]int // the index of an object, by its kind, namespace and name
	failed []string       // the parts of a must-gather that failed, or are not complete
}

// ReadFiles reads a file or a folder; - is stdin. A folder is the output of a must-gather, or of
// oc adm inspect; files in it are recognized by their content. The snapshot's time is that of
// the newest report, or when a must-gather began, if that is later; now if neither is known.
func ReadFiles(name string, stdin io.Reader, now time.Time) (*view.Snapshot, error) {
	r := &reading{at: map[string]int{}}
	var err error
	switch info, failed := os.Stat(name); {
	case name == "-":
		err = r.file(content(stdin))
	case failed == nil && info.IsDir():
		err = r.folder(name)
	default:
		err = r.file(readFile(name))
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

// file reads the content of the one file that was named.
func (r *reading) file(data []byte, err error) error {
	if err != nil {
		return err
	}
	if err := r.parse(data); err != nil {
		return fmt.Errorf("is no resource in YAML or JSON, as kubectl get -o yaml prints it "+
			"(unpack an archive first): %w", err)
	}
	return nil
}

// readable are the names of files that are read in a folder.
var readable = regexp.MustCompile(`/timestamp$|/kms-health/incomplete\.txt$|\.(ya?ml|json)$`)

// folder reads the files of a folder. Those that cannot be read are problems of the snapshot.
func (r *reading) folder(name string) error {
	visit := func(at string, entry fs.DirEntry, err error) error {
		at = filepath.ToSlash(at) // which Windows reads, too
		switch {
		case err != nil:
		case entry.IsDir(), !readable.MatchString("/" + at):
			return nil
		case !entry.Type().IsRegular():
			err = errors.New("is a link or no file; links are not followed")
		default:
			var data []byte
			if data, err = readFile(at); err == nil {
				err = r.use("/"+at, data)
			}
		}
		if err != nil {
			r.Problems = append(r.Problems, fmt.Errorf("%s: %s", at, contract.Cut(err.Error(), 512))) // it may quote the file
		}
		return nil
	}
	err := filepath.WalkDir(name+"/", visit) // with the slash, the folder itself may be a link
	r.Problems = append(r.Problems, r.notGathered()...)
	return err
}

// use reads the content of one file of a folder.
func (r *reading) use(at string, data []byte) error {
	switch {
	case path.Base(at) == "timestamp":
		r.timestamp(data)
	case path.Ext(at) == ".txt":
		r.failed = append(r.failed, strings.Split(string(data), "\n")...)
	case resourceFile.MatchString(at), mayBeWanted(data) && !isOtherJSON(data):
		return r.parse(data)
	}
	return nil
}

// notGathered are the resources with reports among the parts that failed. Those that were gathered all the same, and
// other parts, are no problem.
func (r *reading) notGathered() (problems []error) {
	slices.Sort(r.failed)
	for _, part := range slices.Compact(r.failed) {
		isOf := func(of contract.Resource) bool {
			return strings.HasPrefix(part, of.GVR().GroupResource().String()+"/")
		}
		isRead := func(o *unstructured.Unstructured) bool { of, is := view.ResourceOf(o); return is && isOf(of) }
		if slices.ContainsFunc(view.Resources, isOf) && !slices.ContainsFunc(r.Objects, isRead) {
			problems = append(problems, fmt.Errorf("%s was not gathered", strings.TrimSuffix(part, "/")))
		}
	}
	return problems
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return content(file)
}

// content reads a file. One that is too large, or compressed, is an error.
func content(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if len(data) > maxFile {
		err = fmt.Errorf("is over %d MiB", maxFile>>20)
	}
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		err = errors.New("is compressed; unpack it first: tar -xf")
	}
	return data, err
}

// resourceFile is the path of a resource with reports in a must-gather. Such a file is parsed
// whatever it contains: to ignore a broken one would hide a problem.
var resourceFile = regexp.MustCompile(fmt.Sprintf(`/%s/(%s)/%s\.\w+$|/%s/%s/[^/]+$`,
	regexp.QuoteMeta(contract.OperatorGroup), strings.Join(contract.ResourceNames(), "|"), contract.OperatorObject,
	regexp.QuoteMeta(contract.KMSHealths.Group), contract.KMSHealths.Plural))

// mayBeWanted excludes the thousands of other files of a must-gather.
func mayBeWanted(data []byte) bool {
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) }
	isResource := func(r contract.Resource) bool { return has(r.Kind) }
	return has("kms-health") || has(contract.KMSHealths.Group+"/") || has("kind: Pod") && has("kms") ||
		has(contract.OperatorGroup+"/") && slices.ContainsFunc(contract.Resources, isResource)
}

// isOtherJSON reports whether it is JSON without a kind, such as Prometheus's data in OpenShift's must-gather.
func isOtherJSON(data []byte) bool {
	var object struct{ Kind string }
	err := json.Unmarshal(data, &object)
	list, isList := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil && object.Kind == "" || isList && list.Value == "array"
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

// parse adds the objects of a file, from its documents and from Lists in them.
func (r *reading) parse(data []byte) error {
	text := bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))
	documents := resource.NewLocalBuilder().Unstructured().Stream(text, "").Flatten()
	return documents.Do().Visit(func(info *resource.Info, err error) error {
		if err == nil {
			r.add(info.Object.(*unstructured.Unstructured))
		}
		return err
	})
}

// add adds an object. If it was found twice, as when data was gathered twice, the newer report counts.
func (r *reading) add(o *unstructured.Unstructured) {
	id := fmt.Sprintf("%s %s/%s", o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	at, had := r.at[id]
	switch {
	case !had:
		r.at[id], r.Objects = len(r.Objects), append(r.Objects, o)
	case view.Newest(o).After(view.Newest(r.Objects[at])):
		r.Objects[at] = o
	}
}
