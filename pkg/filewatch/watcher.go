// Package filewatch watches one file, and calls a function with its content each time
// the content changes.
//
// By inotify it finds at once an edit in place, a rename over the file, and any link or
// directory of the path that is replaced, created or removed, as those of a ConfigMap
// volume. It also reads the file every 10 seconds, which finds a change without an event: with
// no inotify instances or watches left, or of a file system without events (NFS, FUSE).
//
// A file that is truncated and written 25 ms later is reported as empty in between. If a
// file system blocks, Run blocks.
package filewatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long after an event the file is read: an editor causes several.
const settle = 25 * time.Millisecond
const maxLookups = 256 // ends a loop of symbolic links

// Watcher follows one file.
type Watcher struct {
	path  string
	limit int64
	poll  time.Duration
	open  func() (*fsnotify.Watcher, error)

	events *fsnotify.Watcher // nil until an inotify instance could be created
	all    bool              // every directory of the names is watched
	pump   sync.WaitGroup
	names  atomic.Pointer[[]string] // whose events are relevant
	wake   chan struct{}            // holds a token after such an event
}

// New returns a Watcher of the file at path, which is an error if it is larger than limit
// bytes. A relative path is taken from the current directory. Nothing is opened before Run.
func New(path string, limit int64) *Watcher {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return &Watcher{path: path, limit: limit, poll: 10 * time.Second, open: fsnotify.NewWatcher,
		wake: make(chan struct{}, 1)}
}

// Run calls onChange with the first content at once (also when the file is absent), then
// after each change, until ctx ends. A change during a call is reported after it. Everything
// that Run started has ended when it returns.
func (w *Watcher) Run(ctx context.Context, onChange func(Content)) {
	defer func() {
		if w.events != nil {
			_ = w.events.Close()
			w.pump.Wait()
		}
	}()
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
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
	for polled := false; ; {
		w.watch(polled)       // before read: a later change then causes another read
		if read() && polled { // there was no event, so watches are wrong or missing
			w.watch(false)
			read()
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			polled = true
		case <-w.wake:
			polled = false
			time.Sleep(settle)
		}
	}
}

// watch receives events from the directories that the path leads through, and from no
// others. What cannot be watched is left to the poll.
//
// After an event all watches are removed and created again. fsnotify keeps them by path, the
// kernel by inode: when directories are moved, exchanged, or created again, a watch is leaked,
// lost, or listed under another path, where Remove panics (v1.10.1).
func (w *Watcher) watch(polled bool) {
	if w.events == nil {
		events, err := w.open()
		if err != nil {
			return
		}
		w.events = events
		w.pump.Go(func() { w.forward(events) })
	}
	var was []string
	if polled && w.all {
		was = *w.names.Load()
	}
	// Repeat until no name was replaced before its directory was watched.
	for names := lookups(w.path); !slices.Equal(names, was); names = lookups(w.path) {
		was = names
		w.names.Store(&names)
		for _, dir := range w.events.WatchList() {
			_ = w.events.Remove(dir) // an error means that the kernel has removed it already
		}
		w.all = true
		for _, name := range names { // a directory is watched once, however often it is added
			w.all = w.events.Add(filepath.Dir(name)) == nil && w.all
		}
	}
}

// forward turns relevant events into one token in w.wake, and errors too, since events were
// then lost. fsnotify sends errors while it holds the lock of Add: hence a goroutine.
func (w *Watcher) forward(events *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-events.Events:
			if !ok {
				return
			}
			// The name of an entry of the root directory begins with "//".
			if !slices.Contains(*w.names.Load(), filepath.Clean(event.Name)) {
				continue
			}
		case _, ok := <-events.Errors:
			if !ok {
				return
			}
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// lookups returns the path of each name that the kernel looks up to find the file behind an
// absolute path (path_resolution(7)): its directories, and those of each symbolic link.
func lookups(path string) []string {
	var names []string
	dir := "/"
	for rest := strings.Split(path, "/"); len(rest) > 0 && len(names) < maxLookups; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir) // the same as the kernel's "..", since dir holds no links
			continue
		}
		at := filepath.Join(dir, name)
		names = append(names, at)
		target, err := os.Readlink(at)
		if err != nil { // not a symbolic link, or absent
			dir = at
			continue
		}
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = slices.Concat(strings.Split(target, "/"), rest)
	}
	return names
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
