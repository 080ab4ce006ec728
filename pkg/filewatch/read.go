package filewatch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Content is what the file holds, or why it cannot be read.
type Content struct {
	// Data is the whole of the file, not nil even when empty; nil when Err is set.
	Data []byte
	// Err names the path and the reason. It wraps fs.ErrNotExist when the file,
	// or a directory of its path, is absent. What an absent file means after valid
	// content is the caller's decision.
	Err error
}

// state is what makes one Content differ from another. The zero state differs
// from that of every Content.
type state struct {
	sum [sha256.Size]byte
	err string
}

func (c Content) state() state {
	var large *tooLargeError
	switch {
	case errors.As(c.Err, &large): // a file that grows further is not a change
		return state{err: "too large"}
	case c.Err != nil:
		return state{err: c.Err.Error()}
	default:
		return state{sum: sha256.Sum256(c.Data)}
	}
}

type tooLargeError struct{ size, limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("too large: %d bytes or more, the limit is %d", e.size, e.limit)
}

// Read returns the content of a regular file of at most limit bytes, in the form that a
// Watcher passes to onChange. If the path is not a regular file, Read does not block,
// and reads at most limit+1 bytes.
func Read(path string, limit int64) Content {
	data, err := readRegular(path, limit)
	if err != nil {
		// One form for all errors: the same cause gives the same state, whichever
		// of the calls in readRegular returned it.
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return Content{Err: &fs.PathError{Op: "read", Path: path, Err: err}}
	}
	return Content{Data: data}
}

func readRegular(path string, limit int64) ([]byte, error) {
	// Stat before open, since opening alone has side effects on a FIFO (unblocks
	// its writer) and on devices (starts a watchdog), ...
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, err
	}
	// ... and after, as it may be another file by now: hence O_NONBLOCK.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, err
	}

	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if size := int64(len(data)); size > limit { // it grew, or its file system reports no size
		return nil, &tooLargeError{size, limit}
	}
	return data, nil
}

func check(info fs.FileInfo, limit int64) error {
	switch {
	case info.IsDir():
		return errors.New("is a directory, not a regular file")
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a regular file (mode %s)", info.Mode())
	case info.Size() > limit:
		return &tooLargeError{info.Size(), limit}
	}
	return nil
}

// Stdin is the path of standard input for ReadOnce.
const Stdin = "-"

// ReadOnce is Read for a command that ends with the file: it also reads standard input and
// pipes, such as those of a shell's <(command), to their end.
func ReadOnce(path string, stdin io.Reader, limit int64) Content {
	from := stdin
	if path != Stdin && path != "/dev/stdin" {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			return Read(path, limit)
		}
		f, err := os.Open(path)
		if err != nil {
			return Content{Err: err}
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &tooLargeError{int64(len(data)), limit}
	}
	if err != nil {
		return Content{Err: &fs.PathError{Op: "read", Path: Shown(path), Err: err}}
	}
	return Content{Data: data}
}

// Shown is a path of ReadOnce for people.
func Shown(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}
