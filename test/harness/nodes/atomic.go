package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// file is one of a volume.
type file struct {
	data []byte
	mode os.FileMode
}

const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// WriteVolume writes files into dir, by their names, as a kubelet writes a volume.
func WriteVolume(dir string, files map[string]string) error {
	volume := map[string]file{}
	for name, content := range files {
		volume[name] = file{[]byte(content), 0o644}
	}
	return writeAtomically(dir, volume)
}

// writeAtomically makes dir show these files, by paths relative to it, all at
// once and as a kubelet does (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go).
// Same files, no change. The folder is made where needed.
func writeAtomically(dir string, files map[string]file) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the volume %s: %w", filepath.Base(dir), err)
		}
	}()
	for path := range files {
		if !filepath.IsLocal(path) || strings.HasPrefix(path, "..") {
			return fmt.Errorf("%q is no path for a file", path)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// 1. What is there?
	link := filepath.Join(dir, dataLink)
	former, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		same, err := holds(filepath.Join(dir, former), files)
		if same || err != nil {
			return err
		}
	}
	// 2. A new folder gets the files.
	next, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		return err
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	for path, f := range files {
		path = filepath.Join(next, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return err
		}
		if err := os.Chmod(path, f.mode); err != nil { // whatever the umask
			return err
		}
	}
	// 3. One rename shows it.
	newLink := filepath.Join(dir, newDataLink)
	if err := os.Symlink(filepath.Base(next), newLink); err != nil {
		return err
	}
	if err := os.Rename(newLink, link); err != nil {
		return err
	}
	// 4. Update the visible names, and remove those of deleted keys.
	if err := linkNames(dir, files); err != nil {
		return err
	}
	// 5. The former folder goes.
	if former == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, former))
}

// linkNames makes the visible names in dir those of the first parts of the paths.
func linkNames(dir string, files map[string]file) error {
	visible := map[string]bool{}
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		visible[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, ".."):
		case visible[name]:
			delete(visible, name)
		default:
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name := range visible {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// holds returns whether a folder has these files and no others.
func holds(dir string, files map[string]file) (bool, error) {
	found := 0
	same := true
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		want, wanted := files[name]
		if !wanted {
			same = false
			return fs.SkipAll
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found++
		same = same && bytes.Equal(data, want.data) && info.Mode().Perm() == want.mode
		return nil
	})
	return same && found == len(files), err
}
