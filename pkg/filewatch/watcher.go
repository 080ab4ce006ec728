// Package filewatch watches one file, and calls a function with its content each time
// the content changes.
//
// It guarantees:
//
//   - The first call happens at once, before any watch is set up, and also when the
//     file does not exist yet.
//   - After each change there is a call with the current content, however the file
//     was changed: an edit in place, a rename over it, the "..data" link of a
//     ConfigMap volume, a directory exchanged by renameat2(2), or a symbolic link or
//     directory of the path that was replaced, created or removed.
//   - There is one call for a burst of changes, and none if the content is unchanged.
//   - Without inotify (no instances or watches left, directories that may not be
//     read) changes are found by polling every Options.Poll. Each poll tries to set
//     up the watches again.
//   - Changes to other files in the directories of the path cost one comparison of
//     names each.
//
// The kernel sends no event for some changes; only the poll finds these: writes
// through a memory map, through a hard link in another directory, or by another host
// (NFS, FUSE, a shared disk); a file system mounted on a directory of the path; a path
// that contains one directory under two names (a bind mount), or the links of
// /proc/<pid>. If a file system blocks, Run blocks.
//
// If an editor truncates the file and writes it after more than Options.Settle, the
// empty content is reported in between. Rename a new file into place to avoid this.
//
// The package logs nothing, and does not interpret the content.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// longestBurst, in Settles, is how long a change may wait for others to end.
	longestBurst = 3
	// attempts is how often a path that changes during evaluate is resolved again.
	attempts = 10
)

// Options tune a Watcher. Zero and negative values mean the default.
type Options struct {
	// MaxSize of the file in bytes: 1 MiB. A larger file is an error.
	MaxSize int64
	// Poll is how often the file is read without any event: 10s.
	Poll time.Duration
	// Settle is how long there must be no event before the file is read: 25ms.
	// Under a stream of events it is read after three times that.
	Settle time.Duration
}

// Watcher follows one file. Its methods may be called from any goroutine.
type Watcher struct {
	path string
	opts Options

	events *fsnotify.Watcher // nil until an inotify instance could be created
	pump   sync.WaitGroup
	names  atomic.Pointer[map[string]struct{}] // the paths whose events are relevant
	wake   chan struct{}                       // holds a token after a relevant event

	mu          sync.Mutex
	notWatching error

	trace func(done string) // for tests: called when woken, and after each part of evaluate
}

// New returns a Watcher of the file at path. A relative path is taken from the
// directory that is current now. Nothing is opened before Run.
func New(path string, opts Options) *Watcher {
	if !filepath.IsAbs(path) {
		if dir, err := os.Getwd(); err == nil {
			path = dir + "/" + path // not Join: in "link/../file" the link counts
		}
	}
	if opts.MaxSize <= 0 {
		opts.MaxSize = 1 << 20
	}
	if opts.Poll <= 0 {
		opts.Poll = 10 * time.Second
	}
	if opts.Settle <= 0 {
		opts.Settle = 25 * time.Millisecond
	}
	return &Watcher{
		path: path, opts: opts,
		wake:        make(chan struct{}, 1),
		notWatching: errNotRunning,
		trace:       func(string) {},
	}
}

var errNotRunning = errors.New("not running")

// Watching reports whether events are received from every directory of the path
// of the file. If not, some or all changes are found by the poll only, and the
// error gives the cause, which may change with every poll.
func (w *Watcher) Watching() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notWatching == nil, w.notWatching
}

func (w *Watcher) setWatching(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notWatching = err
}

// Run calls onChange with the first content at once (also when the file is
// absent), then after each change, until ctx ends. Calls are never concurrent; a
// change during a call is reported after it. Everything that Run started has ended
// when it returns. Run may be called again, but not concurrently.
func (w *Watcher) Run(ctx context.Context, onChange func(Content)) {
	var last state
	report := func(c Content) {
		if s := c.state(); s != last {
			last = s
			onChange(c)
		}
	}
	report(Read(w.path, w.opts.MaxSize))

	defer w.stop()
	timer := time.NewTimer(0) // read again as soon as there are watches
	defer timer.Stop()
	var burst time.Time // the time of the first event that was not processed yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.trace("woken")
			if burst.IsZero() {
				burst = time.Now()
			}
			timer.Reset(min(w.opts.Settle, time.Until(burst.Add(longestBurst*w.opts.Settle))))
		case <-timer.C:
			report(w.evaluate())
			burst = time.Time{}
			timer.Reset(w.opts.Poll)
		}
	}
}

func (w *Watcher) stop() {
	if w.events != nil {
		_ = w.events.Close()
		w.pump.Wait()
		w.events = nil
	}
	w.setWatching(errNotRunning)
}

// evaluate reads the file, and sets up the watches that will report its next change.
// The order matters:
//
//  1. Resolve: which names does the kernel look up, in which directories?
//  2. Watch these directories. From now on a change of the path sends an event.
//  3. Read. A change before (2) is in the content read; a change after it causes
//     another evaluate.
//  4. Resolve again. If the result differs, the path changed between (1) and (2),
//     before the new directories were watched: repeat from (2) with the new result.
//
// If the path changes during every attempt, most of its directories are watched, and
// the poll covers the others.
func (w *Watcher) evaluate() Content {
	var content Content
	var notWatched error
	steps := resolve(w.path) // (1)
	for range attempts {
		w.trace("resolved")
		notWatched = w.watch(steps) // (2)
		w.trace("watched")
		content = Read(w.path, w.opts.MaxSize) // (3)
		w.trace("read")
		again := resolve(w.path) // (4)
		if sameSteps(steps, again) {
			break
		}
		steps = again
	}
	w.setWatching(notWatched)
	return content
}

// watch receives events from the directories of steps, and from no others. It watches
// as many of them as possible, and returns the first error.
//
// The watches are all dropped and made anew, each time. fsnotify keeps them by
// path while the kernel keeps them by inode, and the two part when directories
// are moved, exchanged, or removed and made again (an inode number included): a
// watch is then leaked, or lost, or listed under another path, where Remove panics
// (v1.10.1). Changes between removing and adding are not lost: the file is read later.
func (w *Watcher) watch(steps []step) error {
	if w.events == nil {
		events, err := fsnotify.NewWatcher()
		if err != nil {
			return explain(err)
		}
		w.events = events
		w.pump.Go(func() { w.forward(events) })
	}

	names := map[string]struct{}{"/": {}}
	for _, s := range steps {
		names[s.path()] = struct{}{}
	}
	w.names.Store(&names)

	for _, dir := range w.events.WatchList() {
		_ = w.events.Remove(dir) // an error is the kernel's having removed it already
	}
	var first error
	added := map[string]bool{}
	for _, s := range steps {
		if added[s.dir] {
			continue
		}
		added[s.dir] = true
		if err := w.events.Add(s.dir); err != nil && first == nil {
			first = fmt.Errorf("watch %s: %w", s.dir, explain(err))
		}
	}
	return first
}

// forward turns the events that concern us into one token in w.wake, whatever
// their kind, and errors too (events were lost: look at everything). It is a
// goroutine of its own so that a slow onChange does not make the kernel's queue
// overflow, and because fsnotify sends errors while it holds its lock: the goroutine
// that calls Add must not be the one that receives the errors.
func (w *Watcher) forward(events *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-events.Events:
			if !ok {
				return
			}
			if _, ours := (*w.names.Load())[filepath.Clean(event.Name)]; !ours {
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

// explain adds the cause given by inotify(7) to errors with a misleading text.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w (fs.inotify.max_user_instances, or the limit of open files)", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w (fs.inotify.max_user_watches)", err)
	default:
		return err
	}
}
