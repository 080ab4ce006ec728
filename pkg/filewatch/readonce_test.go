package filewatch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadOnceReadsStandardInputAndPipes(t *testing.T) {
	regular := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(regular, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(fifo, []byte("text"), 0o600) }()
	for _, path := range []string{"-", "/dev/stdin", regular, fifo} {
		if c := ReadOnce(path, strings.NewReader("text"), 4); c.Err != nil || string(c.Data) != "text" {
			t.Errorf("%s: %q, %v", path, c.Data, c.Err)
		}
	}
	for path, want := range map[string]string{
		"-":             "read standard input: too large: 4 bytes or more, the limit is 3",
		"/dev/stdin":    "read /dev/stdin: too large",
		"/no/such/file": "read /no/such/file: no such file or directory",
		t.TempDir():     "is a directory, not a regular file",
		"/dev/zero":     "not a regular file",
	} {
		if c := ReadOnce(path, strings.NewReader("text"), 3); c.Err == nil || !strings.Contains(c.Err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, c.Err, want)
		}
	}
}
