package filewatch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Content is what the file holds, or why it cannot be read.
type Content struct {
	Data []byte // nil when Err is set
	// Err names the path and the reason. It wraps fs.ErrNotExist when the file, or a
	// directory of its path, is absent, which is for the caller to judge.
	Err error
}

// hash is what makes one Content differ from another.
func (c Content) hash() string {
	if c.Err != nil {
		return "error: " + c.Err.Error()
	}
	return fmt.Sprintf("sha256: %x", sha256.Sum256(c.Data))
}

// Read returns the content of a regular file of at most limit bytes, in the form that a
// Watcher passes to onChange. If the path is a FIFO, a device or a directory, Read returns
// an error and does not block.
func Read(path string, limit int64) Content {
	// Without O_NONBLOCK opening a FIFO waits for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Content{Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("must be a regular file, its mode is %s", info.Mode())}
	}
	if err != nil {
		return Content{Err: err}
	}
	return readAll(f, path, limit)
}

// Stdin is the path of standard input for ReadOnce.
const Stdin = "-"

// ReadOnce is Read for a command that ends with the file: it also reads standard input and
// pipes, such as those of a shell's <(command), to their end.
func ReadOnce(path string, stdin io.Reader, limit int64) Content {
	if path == Stdin || path == "/dev/stdin" {
		return readAll(stdin, Shown(path), limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return Content{Err: err}
	}
	defer f.Close()
	return readAll(f, path, limit)
}

// Shown is a path of ReadOnce for people.
func Shown(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}

// readAll reads at most limit+1 bytes: a file may report a size of 0, or grow meanwhile.
// The error does not depend on the size, so that a file that grows further is no change.
func readAll(from io.Reader, name string, limit int64) Content {
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("too large: the limit is %d bytes", limit)}
	}
	if err != nil {
		return Content{Err: err}
	}
	return Content{Data: data}
}
