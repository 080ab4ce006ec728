//go:build linux

package filewatch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The file may be replaced by anything: reading it must end, with bounded memory.
func TestOnlyRegularFilesWithinTheLimitAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o644))
	link(t, "loop", dir, "loop")
	for path, want := range map[string]string{
		write(t, "eight by", dir, "8"):  "eight by",
		write(t, "nine byte", dir, "9"): "too large: the limit is 8 bytes",
		"/proc/version":                 "too large: the limit is 8 bytes", // reports a size of 0
		"/dev/zero":                     "must be a regular file, its mode is Dcrw-rw-rw-",
		fifo:                            "must be a regular file, its mode is prw-r--r--",
		dir:                             "must be a regular file, its mode is drwx",
		dir + "/loop":                   "too many levels of symbolic links",
		dir + "/none":                   "absent",
		dir + "/8/below":                "not a directory",
	} {
		c := Read(path, 8)
		if got := show(c); got != want && (c.Err == nil || !strings.Contains(got, want) || !strings.Contains(got, path)) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestReadOnceReadsStandardInputAndPipes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	go func() { _ = os.WriteFile(fifo, []byte("text"), 0o600) }()
	for _, path := range []string{"-", "/dev/stdin", write(t, "text", dir, "file"), fifo} {
		if c := ReadOnce(path, strings.NewReader("text"), 4); c.Err != nil || string(c.Data) != "text" {
			t.Errorf("%s: %q, %v", path, c.Data, c.Err)
		}
	}
	for path, want := range map[string]string{
		"-":             "read standard input: too large: the limit is 3 bytes",
		"/no/such/file": "open /no/such/file: no such file or directory",
		dir:             "is a directory",
		"/dev/zero":     "too large",
	} {
		if c := ReadOnce(path, strings.NewReader("text"), 3); c.Err == nil || !strings.Contains(c.Err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, c.Err, want)
		}
	}
}

// show is the content in short, "absent" for a file that does not exist.
func show(c Content) string {
	switch {
	case errors.Is(c.Err, fs.ErrNotExist):
		return "absent"
	case c.Err != nil:
		return c.Err.Error()
	default:
		return string(c.Data)
	}
}

// write makes the file, in place, and the directories it lacks.
func write(t testing.TB, data string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(data), 0o644))
	return file
}

// link makes the symbolic link in one step, whatever was there.
func link(t testing.TB, target string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.Symlink(target, file+".link"))
	must(t, os.Rename(file+".link", file))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
