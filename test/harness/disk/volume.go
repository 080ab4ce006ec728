package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteVolume writes these files into a folder as a kubelet does: one rename of the link ..data makes all of them
// visible. It changes nothing if the files are the same.
func WriteVolume(dir string, files map[string]string) error {
	link := filepath.Join(dir, "..data")
	former, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := former != ""
	for name, text := range files {
		old, err := os.ReadFile(filepath.Join(dir, name))
		same = same && err == nil && string(old) == text
	}
	if same {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(next, name), []byte(text), 0o644); err != nil {
			return err
		}
		visible := filepath.Join(dir, name)
		if err := os.Symlink(filepath.Join("..data", name), visible); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := os.Symlink(filepath.Base(next), link+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(link+"_tmp", link); err != nil || former == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, former))
}
