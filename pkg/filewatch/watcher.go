// Package filewatch follows one file, and hands over its content each time that
// it changes.
//
// It promises:
//
//   - The first content at once, before any watch is set up, and also when there
//     is no file yet.
//   - After each change the content that is then in force, by whichever hand the
//     file was changed: an edit in place, a rename over it, the "..data" link of
//     a ConfigMap volume, a directory exchanged by renameat2(2), a symbolic link
//     retargeted or a directory made or removed anywhere on the way.
//   - One call for a burst of changes, none when the content is what it was.
//   - To work without inotify (no instances or watches left, directories that may
//     not be read) at the pace of Options.Poll, and to return to events as soon
//     as a poll finds that it can.
//   - To cost nothing but a look at the name for changes to other files, however
//     many, in the directories on the way.
//
// The kernel tells of some changes to nobody, and of others only to those who
// look from another side. These are seen by the poll alone: writes through a
// memory map, through a hard link in another directory, or by another host (NFS,
// FUSE, a shared disk); a file system mounted on the way; a path that leads
// twice through one directory under two names (a bind mount), or through the
// links of /proc/<pid>. And a file system that hangs, hangs Run.
//
// An editor that empties the file, waits for longer than Options.Settle, and then
// fills it, is seen doing so. Whoever can, should rename a new file into place.
//
// Nothing is logged here, and no content interpreted.
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
	// attempts is how often a way that changes under our eyes is walked anew.
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

	events *fsnotify.Watcher // nil until there is an inotify instance to be had
	pump   sync.WaitGroup
	names  atomic.Pointer[map[string]struct{}] // the paths whose events concern us
	wake   chan struct{}                       // holds a token when there was such an event

	mu       sync.Mutex
	deafness error

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
		wake:     make(chan struct{}, 1),
		deafness: errNotRunning,
		trace:    func(string) {},
	}
}

var errNotRunning = errors.New("not running")

// Watching reports whether events are received from every directory on the way
// to the file. If not, some or all changes are seen by the poll only, and the
// error says why; it may change with every poll.
func (w *Watcher) Watching() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deafness == nil, w.deafness
}

func (w *Watcher) setWatching(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deafness = err
}

// Run calls onChange with the first content at once (also when the file is
// absent), then after each change, until ctx ends. Calls are never concurrent,
// and what changes during one is handed over after it. Nothing that Run started
// outlives it. It may be called again, but not twice at a time.
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
	var burst time.Time // when the first of the events came that were not yet acted on
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

// evaluate finds out what the file holds, and sees to it that the next change
// will be noticed. The order matters:
//
//  1. Resolve: which names does the kernel look up, in which directories?
//  2. Watch these directories. From here on a change on the way wakes us.
//  3. Read. What changed before (2) is in what we read; what changes after it
//     brings us here again.
//  4. Resolve again. If the way is another, it parted between (1) and (2), when
//     nobody was watching the new one: begin again, from what was found.
//
// Whoever moves the way each time we look has watches on most of it, and the
// poll for the rest.
func (w *Watcher) evaluate() Content {
	var content Content
	var deaf error
	way := resolve(w.path) // (1)
	for range attempts {
		w.trace("resolved")
		deaf = w.watch(way) // (2)
		w.trace("watched")
		content = Read(w.path, w.opts.MaxSize) // (3)
		w.trace("read")
		again := resolve(w.path) // (4)
		if sameWay(way, again) {
			break
		}
		way = again
	}
	w.setWatching(deaf)
	return content
}

// watch receives events from the directories of way, and from no others. It does
// what it can, and returns the first thing that it could not do.
//
// The watches are all dropped and made anew, each time. fsnotify keeps them by
// path while the kernel keeps them by inode, and the two part when directories
// are moved, exchanged, or removed and made again (an inode number included): a
// watch is then leaked, or lost, or under another's name, where Remove panics
// (v1.10.1). What comes between drop and make is no loss: the read is yet to come.
func (w *Watcher) watch(way []step) error {
	if w.events == nil {
		events, err := fsnotify.NewWatcher()
		if err != nil {
			return explain(err)
		}
		w.events = events
		w.pump.Go(func() { w.forward(events) })
	}

	names := map[string]struct{}{"/": {}}
	for _, s := range way {
		names[s.path()] = struct{}{}
	}
	w.names.Store(&names)

	for _, dir := range w.events.WatchList() {
		_ = w.events.Remove(dir) // an error is the kernel's having removed it already
	}
	var first error
	added := map[string]bool{}
	for _, s := range way {
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
// overflow, and because fsnotify sends errors with its lock held: whoever calls
// Add must not be the one who is to receive them.
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

// explain says what inotify(7) means by errors that read as something else.
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
