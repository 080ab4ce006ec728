// Package filewatch watches one file, and calls a function with its content each time the content changes.
//
// By inotify it finds at once an edit in place, a rename over the file, and an exchange of its directory, or of what a
// link in its place leads through there, as in a ConfigMap volume. It also reads the file every 10 seconds, which finds
// other changes: of a link's target, of a directory above, without inotify, or without events (NFS, FUSE).
//
// A file that is truncated and written 25 ms later is reported as empty in between. Run blocks if the file system does.
package filewatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long after an event the file is read: an editor causes several.
const settle = 25 * time.Millisecond

// Watcher follows one file.
type Watcher struct {
	path  string
	limit int64
	poll  time.Duration
	open  func() (*fsnotify.Watcher, error)
}

// New returns a Watcher of the file at path, which must not be larger than limit bytes. Nothing is opened before Run.
func New(path string, limit int64) *Watcher {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return &Watcher{path: path, limit: limit, poll: 10 * time.Second, open: fsnotify.NewWatcher}
}

// Run calls onChange with the first content at once (also when the file is absent), then after each change, until ctx
// ends. A change during a call is reported after it. Everything that Run started has ended when it returns.
func (w *Watcher) Run(ctx context.Context, onChange func(Content)) {
	last := ""
	read := func() (changed bool) {
		content := Read(w.path, w.limit)
		if hash := fmt.Sprintf("%v %x", content.Err, sha256.Sum256(content.Data)); hash != last {
			last, changed = hash, true
			onChange(content)
		}
		return changed
	}
	read()
	time.Sleep(settle) // the caller needs the CPU first: to watch a directory can take milliseconds
	events, errs, stop := w.watch()
	defer func() { stop() }()
	read()
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if !read() && events != nil {
				continue
			} // else the watch is missing, or of another directory
		case event, open := <-events:
			if open && !w.concerns(event) {
				continue
			}
		case <-errs: //nolint:errcheck // whatever it is, events were lost
		}
		time.Sleep(settle)
		read()
		// Watch anew, as the directory may be another one now, and read again: a later change causes an event.
		stop()
		events, errs, stop = w.watch()
		read()
	}
}

// watch watches the file's directory until stop is called. Without events it cannot be watched now.
func (w *Watcher) watch() (events <-chan fsnotify.Event, errs <-chan error, stop func()) {
	watcher, err := w.open()
	if err != nil {
		return nil, nil, func() {}
	}
	stop = func() { _ = watcher.Close() }
	if watcher.Add(filepath.Dir(w.path)) != nil {
		return nil, nil, stop
	}
	return watcher.Events, watcher.Errors, stop
}

// concerns reports whether an event is about the file, its directory, or what a link in its place leads through there.
func (w *Watcher) concerns(event fsnotify.Event) bool {
	name := filepath.Clean(event.Name) // that of an entry of the root directory begins with "//"
	target, _ := os.Readlink(w.path)
	through, _, _ := strings.Cut(target, "/")
	return name == w.path || name == filepath.Dir(w.path) || filepath.Base(name) == through
}

// Content is what the file holds, or why it cannot be read.
type Content struct {
	Data []byte // nil when Err is set
	// Err names the path and the reason. It wraps fs.ErrNotExist when the path leads to nothing.
	Err error
}

// Read returns the content of a regular file of at most limit bytes, as a Watcher does. If the
// path is a FIFO, a device or a directory, Read returns an error and does not block.
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

// ReadOnce is Read for a command that ends with the file: it also reads standard input and pipes, to their end.
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

// Shown returns a path of ReadOnce as it is shown to people.
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
