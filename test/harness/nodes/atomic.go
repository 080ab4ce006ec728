package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// WriteVolume makes dir show these files, by paths relative to it, all at
// once and as a kubelet does (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go).
// Same files, no change. The folder is made where needed.
func WriteVolume(dir string, files map[string]string) (err error) {
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
	for path, content := range files {
		path = filepath.Join(next, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
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
func linkNames(dir string, files map[string]string) error {
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
func holds(dir string, files map[string]string) (bool, error) {
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		found[name] = string(data)
		return err
	})
	return maps.Equal(found, files), err
}
