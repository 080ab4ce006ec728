//go:build linux

package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFirstContentComesBeforeAnyWatch(t *testing.T) {
	t.Parallel()
	file := write(t, "0", t.TempDir(), "config.yaml")
	w := New(file, Options{})
	order := make(chan string, 100)
	w.trace = func(done string) { order <- done }
	run(t, w, func(c Content) { order <- show(c) })
	for _, want := range []string{"0", "resolved", "watched", "read"} {
		if got := receive(t, order); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestSameBytesAreNoCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "same", dir, "config.yaml")
	f := follow(t, file, Options{Settle: time.Millisecond})
	f.exactly("same", func() {})
	f.watching()
	for range 10 {
		n := f.reads.Load()
		must(t, os.Rename(write(t, "same", dir, "tmp"), file))
		f.eventually("a read of the file", func() bool { return f.reads.Load() > n })
	}
	f.exactly("other", func() { must(t, os.Rename(write(t, "other", dir, "tmp"), file)) })
}

func TestALastingErrorIsReportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	f := follow(t, file, Options{MaxSize: 3, Poll: time.Millisecond, Settle: time.Millisecond})
	for _, want := range []string{"absent", "too large"} {
		f.until(want)
		n := f.reads.Load()
		f.eventually("some polls", func() bool { return f.reads.Load() > n+20 })
		must(t, os.Rename(write(t, "grew to be larger", dir, "tmp"), file))
	}
	must(t, os.Rename(write(t, "even larger than that", dir, "tmp"), file))
	n := f.reads.Load()
	f.eventually("some polls", func() bool { return f.reads.Load() > n+20 })
	f.exactly("ok", func() { must(t, os.Rename(write(t, "ok", dir, "tmp"), file)) })
}

func TestAStreamOfEventsDoesNotDelayAChangeForever(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	f := follow(t, file, Options{Settle: 100 * time.Millisecond})
	f.until("0")
	f.watching()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	giveUp := time.After(waitLimit)
	for i := 0; ; i++ {
		select {
		case <-f.got:
			return
		case <-tick.C:
			must(t, os.Rename(write(t, fmt.Sprint("version ", i), dir, "tmp"), file))
		case <-giveUp:
			t.Fatal("no call while the file kept changing")
		}
	}
}

func TestChangesOfOtherFilesCauseNoRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "a", "config.yaml")
	f := follow(t, file, Options{Settle: time.Millisecond})
	f.until("0")
	f.watching()
	before := f.reads.Load()
	for i := range 3000 {
		for _, d := range []string{dir, filepath.Join(dir, "a")} { // siblings of the file, and of its directory
			must(t, os.Rename(write(t, "noise", d, "config.yaml.tmp"), write(t, "", d, fmt.Sprint("noise", i%10))))
		}
	}
	must(t, os.Rename(write(t, "1", dir, "tmp"), file))
	f.until("1") // events arrive in order, so those of the other files have been received
	if n := f.reads.Load() - before; n > 3 {
		t.Errorf("the file was read %d times, want 1 (or 2, if the last change was cut in two)", n)
	}
}

func TestASlowCallerGetsTheLastContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	w := New(file, Options{Poll: time.Hour, Settle: time.Millisecond})
	entered, leave := make(chan string), make(chan struct{})
	var inside atomic.Int32
	run(t, w, func(c Content) {
		if inside.Add(1) > 1 {
			t.Error("onChange called while it runs")
		}
		entered <- show(c)
		<-leave
		inside.Add(-1)
	})
	receive(t, entered)
	leave <- struct{}{}
	must(t, os.Rename(write(t, "1", dir, "tmp"), file))
	receive(t, entered)
	for i := range 100 {
		must(t, os.Rename(write(t, fmt.Sprint("version ", i), dir, "tmp"), file))
	}
	leave <- struct{}{}
	if got := receive(t, entered); got != "version 99" {
		t.Errorf("got %q after the slow call, want the last version", got)
	}
	leave <- struct{}{}
}

// evaluate itself must notice a path that changes between its steps: no event reports
// such a change.
func TestLinkRetargetedDuringEvaluate(t *testing.T) {
	t.Parallel()
	for _, gap := range []string{"resolved", "watched", "read"} {
		t.Run(gap, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, "old", dir, "old", "config.yaml")
			write(t, "new", dir, "new", "config.yaml")
			link(t, "old", dir, "link")

			f := &follower{t: t, w: New(filepath.Join(dir, "link", "config.yaml"), Options{Poll: time.Hour}), got: make(chan Content, 1000)}
			var once atomic.Bool
			f.w.trace = func(done string) {
				if done == gap && once.CompareAndSwap(false, true) {
					link(t, "new", dir, "link")
				}
			}
			run(t, f.w, func(c Content) { f.got <- c })
			f.until("new")
			write(t, "edited", dir, "new", "config.yaml")
			f.until("edited")
		})
	}
}

func TestEditedDuringEvaluate(t *testing.T) {
	t.Parallel()
	for _, gap := range []string{"resolved", "watched", "read"} {
		t.Run(gap, func(t *testing.T) {
			t.Parallel()
			file := write(t, "0", t.TempDir(), "config.yaml")
			w := New(file, Options{Poll: time.Hour})
			var once atomic.Bool
			w.trace = func(done string) {
				if done == gap && once.CompareAndSwap(false, true) {
					write(t, "1", file)
				}
			}
			got := make(chan string, 10)
			run(t, w, func(c Content) { got <- show(c) })
			for _, want := range []string{"0", "1"} {
				if s := receive(t, got); s != want {
					t.Errorf("got %q, want %q", s, want)
				}
			}
		})
	}
}

// Directories that are no longer part of the path must not stay watched, and must be
// watched again when they return; fsnotify must not get two paths of one inode.
func TestOnlyDirectoriesOfThePathAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 10 {
		write(t, fmt.Sprint("version ", i), dir, fmt.Sprint("d", i), "config.yaml")
	}
	link(t, "d0", dir, "link")
	f := follow(t, filepath.Join(dir, "link", "config.yaml"), Options{Settle: time.Millisecond})
	for range 2 {
		for i := range 10 {
			link(t, fmt.Sprint("d", i), dir, "link")
			f.until(fmt.Sprint("version ", i))
		}
	}
	var want []string
	for _, s := range resolve(f.w.path) {
		want = append(want, s.dir)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	f.watching()
	f.eventually("watches on the directories of the path, and no others", func() bool {
		got := f.w.events.WatchList()
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func TestAPathThatChangesDuringEachEvaluateIsLeftToThePoll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "old", dir, "old", "config.yaml")
	write(t, "new", dir, "new", "config.yaml")
	w := New(filepath.Join(dir, "link", "config.yaml"), Options{})
	reads := 0
	w.trace = func(done string) {
		if done == "resolved" {
			link(t, []string{"old", "new"}[reads%2], dir, "link")
			reads++
		}
	}
	link(t, "new", dir, "link")
	w.evaluate()
	w.stop()
	if reads != attempts {
		t.Errorf("walked %d times, want %d", reads, attempts)
	}
}

func TestThePollFindsChangesWithoutEvents(t *testing.T) {
	t.Parallel()
	elsewhere := write(t, "0", t.TempDir(), "file")
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.Link(elsewhere, file))
	f := follow(t, file, Options{Poll: 10 * time.Millisecond})
	f.until("0")
	f.watching()
	write(t, "1", elsewhere)
	f.until("1")
}

func TestLostEventsCauseARead(t *testing.T) {
	t.Parallel()
	elsewhere := write(t, "0", t.TempDir(), "file")
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.Link(elsewhere, file))
	f := follow(t, file, Options{})
	f.until("0")
	f.watching()
	write(t, "1", elsewhere) // for this change the kernel sends no event
	f.w.events.Errors <- fsnotify.ErrEventOverflow
	f.until("1")
}

// The kernel's name for what is in the root begins with two slashes in fsnotify.
func TestEventsOfTheRootDirectoryAreMatched(t *testing.T) {
	t.Parallel()
	w := New("/config.yaml", Options{})
	w.names.Store(&map[string]struct{}{"/config.yaml": {}})
	events := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.forward(events)
	}()
	events.Events <- fsnotify.Event{Name: "//tmp", Op: fsnotify.Chmod}
	events.Events <- fsnotify.Event{Name: "//config.yaml", Op: fsnotify.Create}
	close(events.Errors)
	<-done
	if len(w.wake) != 1 {
		t.Error("the event of /config.yaml was ignored")
	}
}

func TestRelativePathIsOfTheDirectoryAtNew(t *testing.T) { // not parallel: changes directory
	dir := t.TempDir()
	write(t, "here", dir, "sub", "config.yaml")
	write(t, "", dir, "sub", "deep", "file")
	link(t, "sub/deep", dir, "link")
	t.Chdir(dir)
	w := New("link/../config.yaml", Options{}) // not dir/config.yaml
	t.Chdir("/")
	first := make(chan string, 10)
	run(t, w, func(c Content) { first <- show(c) })
	if got := receive(t, first); got != "here" {
		t.Errorf("got %q", got)
	}
}

func TestWatchingIsFalseWhileNotRunning(t *testing.T) {
	t.Parallel()
	w := New(write(t, "", t.TempDir(), "config.yaml"), Options{})
	no := func(when string) {
		if ok, err := w.Watching(); ok || err == nil {
			t.Errorf("%s: %v, %v", when, ok, err)
		}
	}
	no("before Run")
	for range 2 { // Run may be called again
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		w.trace = func(done string) {
			if done == "read" {
				cancel()
			}
		}
		w.Run(ctx, func(Content) { calls++ })
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
		no("after Run")
	}
}

func TestNothingGrows(t *testing.T) { // not parallel: counts what the process holds
	const changes = 1000 // `make bench` has ten times as many, of a process
	vol := newVolume(t)
	live := t.TempDir()
	write(t, "0", live, "live", "config.yaml")
	vol.swap("0")
	f := follow(t, vol.file, Options{Settle: 50 * time.Microsecond})
	g := follow(t, filepath.Join(live, "live", "config.yaml"), Options{Settle: 50 * time.Microsecond})

	holds := func() (goroutines, fds, watches int, heap uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return runtime.NumGoroutine(), len(entries), kernelWatches(t), m.HeapAlloc
	}
	change := func(i int) {
		vol.swap(fmt.Sprint("version ", i))
		exchange(t, live, "config.yaml", fmt.Sprint("version ", i))
		f.until(fmt.Sprint("version ", i))
		g.until(fmt.Sprint("version ", i))
	}
	for i := range 100 { // what is allocated once
		change(i)
	}
	f.watching()
	g.watching()
	g0, fd0, w0, h0 := holds()
	for i := range changes {
		change(1000 + i)
	}
	f.eventually("as many goroutines, descriptors and watches as before", func() bool {
		g1, fd1, w1, _ := holds()
		return g1 <= g0 && fd1 <= fd0 && w1 <= w0
	})
	if _, _, _, h1 := holds(); h1 > h0+h0/2+256<<10 {
		t.Errorf("%d bytes of heap, were %d", h1, h0)
	}
}

// kernelWatches counts the inotify watches of this process, as the kernel does.
func kernelWatches(t testing.TB) int {
	n := 0
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	must(t, err)
	for _, info := range infos {
		data, _ := os.ReadFile(info) // the descriptor of the directory that was just read is closed
		n += strings.Count(string(data), "inotify wd:")
	}
	return n
}

func BenchmarkSwap(b *testing.B) {
	vol := newVolume(b)
	vol.swap("start")
	f := follow(b, vol.file, Options{})
	f.until("start")
	f.watching()
	var took []float64
	for i := range b.N {
		want := fmt.Sprint("version ", i)
		at := vol.swap(want)
		f.until(want)
		took = append(took, float64(time.Since(at).Microseconds())/1000)
	}
	slices.Sort(took)
	for _, p := range []int{50, 99, 100} {
		b.ReportMetric(took[(len(took)-1)*p/100], fmt.Sprintf("ms-p%d", p))
	}
	b.ReportMetric(0, "ns/op")
}

// waitLimit is how long a test waits for an event. Usually it takes less than a
// hundredth of that; more on a busy machine.
const waitLimit = 30 * time.Second

// follower is a running Watcher and the contents that it has reported.
type follower struct {
	t   testing.TB
	w   *Watcher
	got chan Content
	// how often Run was woken by an event, and how often it read the file after the first time
	wakes, reads atomic.Int64
}

// follow starts a Watcher, which polls only if opts set an interval.
func follow(t testing.TB, path string, opts Options) *follower {
	if opts.Poll == 0 {
		opts.Poll = time.Hour
	}
	f := &follower{t: t, w: New(path, opts), got: make(chan Content, 10_000)}
	f.w.trace = func(done string) {
		switch done {
		case "woken":
			f.wakes.Add(1)
		case "read":
			f.reads.Add(1)
		}
	}
	run(t, f.w, func(c Content) { f.got <- c })
	return f
}

// run runs w until the test ends, and checks that Run returns then.
func run(t testing.TB, w *Watcher, onChange func(Content)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, onChange)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(waitLimit):
			t.Error("Run did not return")
		}
	})
}

func receive(t testing.TB, from <-chan string) string {
	t.Helper()
	select {
	case s := <-from:
		return s
	case <-time.After(waitLimit):
		t.Fatalf("received nothing in %s", waitLimit)
		return ""
	}
}

// next returns the next reported content.
func (f *follower) next() Content {
	f.t.Helper()
	select {
	case c := <-f.got:
		return c
	case <-time.After(waitLimit):
		ok, err := f.w.Watching()
		f.t.Fatalf("no content was reported in %s (watching: %v, %v)", waitLimit, ok, err)
		return Content{}
	}
}

// until waits for this content, or for an error that contains this text.
func (f *follower) until(want string) {
	f.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		c := f.next()
		if s := show(c); s == want || c.Err != nil && strings.Contains(s, want) {
			return
		} else if time.Now().After(deadline) {
			f.t.Fatalf("got %q, and no %q in %s", s, want, waitLimit)
		}
	}
}

// exactly requires one call for the change, and none from before it.
func (f *follower) exactly(want string, change func()) {
	f.t.Helper()
	change()
	if got := show(f.next()); got != want {
		f.t.Errorf("got %q, want just %q", got, want)
	}
}

// watching waits for the watches to be in place.
func (f *follower) watching() {
	f.t.Helper()
	f.eventually("watches", func() bool { ok, _ := f.w.Watching(); return ok })
}

func (f *follower) eventually(what string, is func() bool) {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); !is(); <-tick.C {
		if time.Now().After(deadline) {
			ok, err := f.w.Watching()
			f.t.Fatalf("not in %s: %s (watching: %v, %v)", waitLimit, what, ok, err)
		}
	}
}

// show is the content in short, "absent" for a file that is not there.
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
