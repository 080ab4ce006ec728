package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// ErrNothing is wrapped if files contain no resource with reports.
var ErrNothing = errors.New("no resource with reports is in it")

// Bounds of what is read.
const (
	maxFile  = 64 << 20 // bytes of one file: a must-gather has logs of any size
	maxNotes = 20
)

type reading struct {
	view.Snapshot
	began      time.Time // when a must-gather began
	hasReports bool      // whether a resource with reports was found
}

// ReadFiles reads a file or a folder; - is stdin. A folder is that of a
// must-gather, or of oc adm inspect; files are recognized by their content. The time of the
// snapshot is that of the newest report, or that at which a must-gather began, if that is later;
// now if neither is known.
func ReadFiles(name string, stdin io.Reader, now time.Time) (*view.Snapshot, error) {
	r := &reading{}
	if err := r.path(name, stdin); err != nil {
		return nil, err
	}
	r.Now = r.began
	for _, o := range r.Objects {
		if at := view.Newest(o); at.After(r.Now) {
			r.Now = at
		}
	}
	r.Now = cmp.Or(r.Now, now)
	// What is not in files may exist.
	r.FromFiles, r.FilesAge = true, max(0, now.Sub(r.Now))
	r.Unread = map[string]bool{view.KindDeployment: true, view.KindLease: true}
	return &r.Snapshot, nil
}

func (r *reading) path(name string, from io.Reader) error {
	if name != "-" {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return r.tree(name)
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	switch {
	case err != nil:
	case len(data) > maxFile:
		err = fmt.Errorf("is over %d MiB; name the file of one operator resource", maxFile>>20)
	case bytes.HasPrefix(data, []byte("\x1f\x8b")) || len(data) > 262 && string(data[257:262]) == "ustar":
		err = errors.New("is an archive; unpack it, and name the folder")
	default:
		err = r.parse(data)
	}
	if err == nil && !r.hasReports {
		err = fmt.Errorf("%w: expected %s, or a List of such", ErrNothing, wanted)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// tree reads the files of a folder. What cannot be read of it is skipped, but for the file of a
// resource with reports: that would hide a problem.
func (r *reading) tree(name string) error {
	root, err := filepath.EvalSymlinks(name) // WalkDir does not follow a link, also not the folder itself
	if err != nil {
		return err
	}
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		at = filepath.ToSlash(at)
		switch {
		case err != nil:
			r.skipped(at, err)
			return nil
		case entry.Name() == "timestamp":
			r.timestamp(at, entry)
			return nil
		case entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(at)):
			return nil
		}
		data, err := content(at, entry)
		if err == nil && (isResource(at) || mayBeWanted(data)) {
			err = r.parse(data)
		}
		if err != nil && isResource(at) {
			return fmt.Errorf("%q: %w", at, err)
		}
		if err != nil {
			r.skipped(at, err)
		}
		return nil
	})
	if err == nil && !r.hasReports {
		err = fmt.Errorf("%s: %w: looked in YAML and JSON files for %s", name, ErrNothing, wanted)
	}
	return err
}

func (r *reading) skipped(at string, err error) {
	if r.Notes = append(r.Notes, fmt.Sprintf("%q: skipped: %v", at, err)); len(r.Notes) > maxNotes {
		r.Notes = append(r.Notes[:maxNotes], "and more such warnings")
	}
}

// content reads a regular file of a tree that is not too large.
func content(at string, entry fs.DirEntry) ([]byte, error) {
	info, err := entry.Info()
	switch {
	case err != nil:
		return nil, err
	case !entry.Type().IsRegular():
		return nil, errors.New("is a link or no file; links are not followed")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("is over %d MiB", maxFile>>20)
	}
	return os.ReadFile(at)
}

// isResource reports whether a file's path is that of a resource with reports.
func isResource(at string) bool {
	folder := path.Dir(at)
	plural, group := path.Base(folder), path.Base(path.Dir(folder))
	isCluster := strings.TrimSuffix(path.Base(at), path.Ext(at)) == contract.OperatorObject
	return plural == contract.KMSHealths.Plural && group == contract.KMSHealths.Group ||
		isCluster && slices.Contains(contract.ResourceNames(), plural) && group == contract.OperatorGroup
}

// mayBeWanted excludes the thousands of other files of a must-gather.
func mayBeWanted(data []byte) bool {
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) }
	isResource := func(r contract.Resource) bool { return has(r.Kind) }
	return has("kms-health") || has(contract.KMSHealths.Group+"/") || has("kind: Pod") && has("kms") ||
		has(contract.OperatorGroup+"/") && slices.ContainsFunc(contract.Resources, isResource)
}

// timestamp reads when a must-gather began, which is the first line of its file: a time as
// Go prints it. A file with something else is ignored.
func (r *reading) timestamp(at string, entry fs.DirEntry) {
	data, err := content(at, entry)
	if err != nil {
		return
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line, _, _ = strings.Cut(line, " m=")
	began, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", strings.TrimSpace(line))
	if err == nil && (r.began.IsZero() || began.Before(r.began)) {
		r.began = began
	}
}

// parse adds the objects of a file that are of use: those of its documents, and of Lists in them.
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

// add adds an object if it is of use. If it was found twice, as when data was gathered twice, the
// newer report counts.
func (r *reading) add(o *unstructured.Unstructured) {
	at := slices.IndexFunc(r.Objects, func(had *unstructured.Unstructured) bool {
		return had.GetKind() == o.GetKind() && had.GetNamespace() == o.GetNamespace() && had.GetName() == o.GetName()
	})
	_, is := view.ResourceOf(o)
	r.hasReports = r.hasReports || is
	switch {
	case !view.Wanted(o):
	case at < 0:
		r.Objects = append(r.Objects, o)
	case view.Newest(o).After(view.Newest(r.Objects[at])):
		r.Objects[at] = o
	}
}

// wanted describes the objects that have reports.
var wanted = fmt.Sprintf("%s of %s named %s, or a %s",
	strings.Join(contract.ResourceNames(), ", "), contract.OperatorGroup, contract.OperatorObject,
	contract.KMSHealths.Kind)
