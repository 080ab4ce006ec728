package source

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kms-health/kms-health/pkg/contract"
)

// A tree is the files of a must-gather, or of what oc adm inspect writes: in a folder, or
// in an archive of it. Below any folder it has
//
//	cluster-scoped-resources/<group>/<resource>/<name>.yaml
//	namespaces/<namespace>/<group>/<resource>.yaml            a list
//	namespaces/<namespace>/<group>/<resource>/<name>.yaml
//	namespaces/<namespace>/pods/<pod>/<pod>.yaml
//	timestamp                                                 when it began, and ended
//	kms-health/kube-apiserver.metrics                         of manifests/must-gather/gather
//
// where the core group is called core. Files in other places are read too, if they have
// an operator resource.

// treeFile is a regular file of a tree.
type treeFile struct {
	at   string // its path, with slashes
	size int64
	read func() ([]byte, error) // its content; called at most once, and before the next file
	// link is what a link names, which is never followed; empty: a file.
	link string
}

// content reads the file, if it is one, and not too large.
func (f treeFile) content() ([]byte, error) {
	switch {
	case f.link != "":
		return nil, fmt.Errorf("is a link to %q; links are not followed", f.link)
	case f.size > maxFile:
		return nil, fmt.Errorf("is over %d MiB", maxFile>>20)
	}
	return f.read()
}

// maxParsed bounds what is parsed of a tree, in bytes.
const maxParsed = 1 << 30

// maxTimestamp is more than a file timestamp has, in bytes.
const maxTimestamp = 4096

// tree reads what walk finds.
func (r *reading) tree(root string, walk func(visit func(treeFile) error, skipped func(at string, err error)) error) error {
	looked, found := 0, 0
	skipped := func(at string, err error) { r.note("%s: skipped: %v", printable(at), err) }
	err := walk(func(f treeFile) error {
		if path.Base(f.at) == "timestamp" && f.size <= maxTimestamp && f.link == "" {
			r.timestamp(f)
			return nil
		}
		if r.Objects && isMetrics(f.at) {
			if err := r.metrics(f); err != nil {
				skipped(f.at, err)
			}
			return nil
		}
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(f.at)) {
			return nil
		}
		looked++
		n, err := r.file(f)
		found += n
		switch {
		case err != nil && isOurs(f.at): // skipping it would hide a problem
			return fmt.Errorf("%s: %w", printable(f.at), err)
		case errors.Is(err, errTwice):
			return err
		case err != nil:
			skipped(f.at, err)
		}
		return nil
	}, skipped)
	if err != nil {
		return err
	}
	if found == 0 && !r.Objects {
		return fmt.Errorf("%s: %w: looked in %d YAML and JSON files for an object named %s of a kind of %s/v1 (%s), as in cluster-scoped-resources/%s/kubeapiservers/cluster.yaml",
			root, ErrNothing, looked, contract.OperatorObject, contract.OperatorGroup, kindNames(), contract.OperatorGroup)
	}
	return nil
}

// errTwice is wrapped if two files cannot both be used.
var errTwice = errors.New("found twice")

// file reads the resources of one file, if it may have any, and returns how many operator
// resources it has.
func (r *reading) file(f treeFile) (found int, err error) {
	where, inLayout := placeOf(f.at)
	if inLayout {
		r.Gathered.places[where] = true
		defer func() {
			if err != nil {
				r.Gathered.broken[where] = true
			}
		}()
	}
	data, err := f.content()
	if err != nil {
		return 0, err
	}
	wanted := hasResource(data) || isOurs(f.at) ||
		r.Objects && (!inLayout || kinds[where.resource] != "") && bytes.Contains(data, []byte("kms-health"))
	if !wanted {
		return 0, nil
	}
	if r.parsed += len(data); r.parsed > maxParsed {
		return 0, fmt.Errorf("over %d MiB of files that may have an operator resource", maxParsed>>20)
	}
	targets, err := r.resources(data)
	for _, t := range targets {
		if err := r.add(printable(f.at), t); err != nil {
			return found, fmt.Errorf("%w: %w", errTwice, err)
		}
		found++
	}
	if err == nil && len(targets) == 0 && isOurs(f.at) {
		err = fmt.Errorf("holds no object named %s of a kind of %s/v1 (%s), as expected from its path", contract.OperatorObject, contract.OperatorGroup, kindNames())
	}
	return found, err
}

// printable is a path in one line, quoted if it would not be.
func printable(at string) string {
	if strings.ContainsFunc(at, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(at)
	}
	return at
}

// isOurs reports whether a file's path is that of one of the operator resources.
func isOurs(at string) bool {
	name, folder := path.Base(at), path.Dir(at)
	if path.Base(folder) == contract.KMSHealths.Plural && path.Base(path.Dir(folder)) == contract.KMSHealths.Group {
		return true
	}
	return strings.TrimSuffix(name, path.Ext(name)) == contract.OperatorObject &&
		slices.Contains(contract.ResourceNames(), path.Base(folder)) && path.Base(path.Dir(folder)) == contract.OperatorGroup
}

// hasResource excludes the thousands of other files of a must-gather.
func hasResource(data []byte) bool {
	if bytes.Contains(data, []byte(contract.KMSHealths.Group+"/"+contract.KMSHealths.Version)) {
		return true
	}
	if !bytes.Contains(data, []byte(contract.OperatorGroup+"/")) {
		return false
	}
	return slices.ContainsFunc(contract.Resources, func(r contract.Resource) bool { return bytes.Contains(data, []byte(r.Kind)) })
}

// timestamp reads when a must-gather began, which is the first line of its file: a time as
// Go prints it. A file with something else is ignored.
func (r *reading) timestamp(f treeFile) {
	data, err := f.read()
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

// folder is a tree in a folder.
type folder struct{ path string }

func (d folder) walk(visit func(treeFile) error, skipped func(string, error)) error {
	// WalkDir does not follow a link, were it the folder itself.
	root, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			skipped(at, err)
			return nil
		}
		f := treeFile{at: filepath.ToSlash(at), read: func() ([]byte, error) { return os.ReadFile(at) }}
		switch {
		case entry.Type().IsRegular():
			info, err := entry.Info()
			if err != nil {
				skipped(at, err)
				return nil
			}
			f.size = info.Size()
		case entry.Type()&fs.ModeSymlink != 0:
			if f.link, err = os.Readlink(at); err != nil || f.link == "" {
				f.link = "another file"
			}
		default:
			return nil
		}
		return visit(f)
	})
}
