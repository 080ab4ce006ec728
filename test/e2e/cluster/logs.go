package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// KeepLogs copies what the programs and containers of all nodes have written into a
// folder, one folder per node.
func (c *Cluster) KeepLogs(dir string) error {
	var errs []error
	for _, n := range c.Nodes() {
		errs = append(errs, copyLogs(filepath.Join(n.dir, "log"), filepath.Join(dir, n.Name)))
	}
	return errors.Join(errs...)
}

// copyLogs copies the files of a folder. The links that a kubelet makes are passed
// over: they lead to files that are copied too.
func copyLogs(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}
