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
	// or a directory on the way to it, is absent. A caller that has had good
	// content decides for itself what an absent file means.
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
	case errors.As(c.Err, &large): // growing further is no news
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

// Read returns the content of a regular file of at most limit bytes, as a Watcher
// hands it over. Whatever else the path leads to, it does not block, and reads at
// most limit+1 bytes.
func Read(path string, limit int64) Content {
	data, err := readRegular(path, limit)
	if err != nil {
		// One form for all errors, so that it does not matter to state which of
		// the calls below met the same obstacle.
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return Content{Err: &fs.PathError{Op: "read", Path: path, Err: err}}
	}
	return Content{Data: data}
}

func readRegular(path string, limit int64) ([]byte, error) {
	// Looked at before it is opened, since opening alone does something to a
	// FIFO (frees its writer) and to devices (starts a watchdog), ...
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
	if size := int64(len(data)); size > limit { // it grew, or is of a kind that shows no size
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
