package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// configMap is a folder as the kubelet mounts a ConfigMap.
type configMap struct {
	dir     string
	version int
}

func (c *configMap) file() string { return filepath.Join(c.dir, "config.yaml") }

// swap puts content in place as the kubelet does (atomic_writer.go of
// k8s.io/kubernetes/pkg/volume/util): a new folder beside the old one, one rename
// of the link by which both are reached, and the old one removed. It returns when
// the rename began.
func (c *configMap) swap(content string) (changed time.Time, err error) {
	folder := func(version int) string { return fmt.Sprintf("..version-%d", version) }
	c.version++
	next := filepath.Join(c.dir, folder(c.version))
	if err := os.MkdirAll(next, 0o700); err != nil {
		return changed, err
	}
	if err := os.WriteFile(filepath.Join(next, "config.yaml"), []byte(content), 0o600); err != nil {
		return changed, err
	}
	link := filepath.Join(c.dir, "..data")
	if err := os.Symlink(folder(c.version), link+"_tmp"); err != nil {
		return changed, err
	}
	changed = time.Now()
	if err := os.Rename(link+"_tmp", link); err != nil {
		return changed, err
	}
	if c.version == 1 {
		return changed, os.Symlink(filepath.Join("..data", "config.yaml"), c.file())
	}
	return changed, os.RemoveAll(filepath.Join(c.dir, folder(c.version-1)))
}
