package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Files are files with the operator resources of a cluster.
type Files struct {
	// Paths are files and folders; - is Stdin.
	Paths []string
	Stdin io.Reader
	// Target and Node are those of a reporter's output, which does not contain them;
	// empty: not known.
	Target, Node string
}

// Taken is the content of Files.
type Taken struct {
	Targets []view.Target
	// At is when it was taken: the time of the newest report. Zero: there is none.
	At time.Time
	// Notes are warnings, a line each: files of a folder that could not be used, and
	// resources that were found twice.
	Notes []string
}

// ErrNothing is wrapped if files contain no operator resource.
var ErrNothing = errors.New("none of the operator resources is in it")

// maxFile bounds what is read of one file: a must-gather has logs of any size.
const maxFile = 64 << 20

// Read reads the files. A file given by its path must be usable; files in a folder may be
// skipped.
func (f Files) Read() (Taken, error) {
	r := &reading{Files: f, from: map[string]string{}}
	for _, path := range f.Paths {
		var err error
		if path == "-" {
			err = r.stream("standard input", f.Stdin)
		} else {
			err = r.path(path)
		}
		if err != nil {
			return Taken{}, err
		}
	}
	order := operatorcr.Plurals()
	slices.SortFunc(r.Targets, func(a, b view.Target) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	for _, t := range r.Targets {
		if at := t.Newest(); at.After(r.At) {
			r.At = at
		}
	}
	return r.Taken, nil
}

type reading struct {
	Files
	Taken
	from map[string]string // the path of each target
}

func (r *reading) path(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return r.folder(path)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.stream(path, file)
}

func (r *reading) stream(path string, from io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s: is over %d MiB; name the file of one operator resource", path, maxFile>>20)
	}
	targets, err := r.parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range targets {
		if err := r.add(path, t); err != nil {
			return err
		}
	}
	return nil
}

// folder reads the operator resources of a must-gather, anywhere below the folder.
func (r *reading) folder(path string) error {
	// WalkDir does not follow a link, were it the folder itself.
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	looked, found := 0, 0
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			r.note("%s: skipped: %v", at, err)
			return nil
		}
		if !entry.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(at)) {
			return nil
		}
		looked++
		targets, err := worth(at, entry)
		switch {
		case err == nil && len(targets) == 0 && isOurs(at):
			return fmt.Errorf("%s: holds no object named %s of a kind of %s/v1 (%s), as expected from its path", at, operatorcr.Name, operatorcr.Group, kindNames())
		case err != nil && isOurs(at): // skipping it would hide a problem
			return fmt.Errorf("%s: %w", at, err)
		case err != nil:
			r.note("%s: skipped: %v", at, err)
		}
		for _, t := range targets {
			if err := r.add(at, t); err != nil {
				return err
			}
			found++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found == 0 {
		return fmt.Errorf("%s: %w: looked in %d YAML and JSON files for an object named %s of a kind of %s/v1 (%s), as in cluster-scoped-resources/%s/kubeapiservers/cluster.yaml",
			path, ErrNothing, looked, operatorcr.Name, operatorcr.Group, kindNames(), operatorcr.Group)
	}
	return nil
}

// worth reads the operator resources of a file in a folder, if any.
func worth(path string, entry fs.DirEntry) ([]view.Target, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("is over %d MiB", maxFile>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil || !worthParsing(data) && !isOurs(path) {
		return nil, err
	}
	return resources(data)
}

// isOurs reports whether a file's path is that of one of the resources in a must-gather.
func isOurs(path string) bool {
	name, folder := filepath.Base(path), filepath.Dir(path)
	return strings.TrimSuffix(name, filepath.Ext(name)) == operatorcr.Name &&
		slices.Contains(operatorcr.Plurals(), filepath.Base(folder)) && filepath.Base(filepath.Dir(folder)) == operatorcr.Group
}

// worthParsing excludes the thousands of other files of a must-gather.
func worthParsing(data []byte) bool {
	if !bytes.Contains(data, []byte(operatorcr.Group+"/")) {
		return false
	}
	return slices.ContainsFunc(operatorcr.Resources, func(r operatorcr.Resource) bool { return bytes.Contains(data, []byte(r.Kind)) })
}

// add adds a target. If a resource was found twice, as when data was gathered twice, the
// newer one counts.
func (r *reading) add(path string, t view.Target) error {
	other, twice := r.from[t.Name]
	if !twice {
		r.from[t.Name] = path
		r.Targets = append(r.Targets, t)
		return nil
	}
	if t.IsOutput() {
		return fmt.Errorf("%s: a reporter's output contains no node, so it cannot be distinguished from that of %s; read them one at a time, with --node", path, other)
	}
	at := slices.IndexFunc(r.Targets, func(had view.Target) bool { return had.Name == t.Name })
	newer, older := other, path
	if t.Newest().After(r.Targets[at].Newest()) {
		newer, older = path, other
		r.Targets[at], r.from[t.Name] = t, path
	}
	r.note("%s is in %s, too; the newer one counts, in %s", t.Name, older, newer)
	return nil
}

func (r *reading) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func kindNames() string {
	var names []string
	for _, r := range operatorcr.Resources {
		names = append(names, r.Kind)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
