// Package disk reads and writes files, for tests.
package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Read returns the content of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Write writes a file that only the test's user can read.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Replace replaces a file in one step, so that a program that watches it (the API server its certificate, the reporter
// its token) never reads a partial file.
func Replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
