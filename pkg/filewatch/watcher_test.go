//go:build linux

package filewatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit is how long a test waits for an event. Usually it takes less than a
// hundredth of that; more on a busy machine.
const waitLimit = 30 * time.Second

// Each test of the ways in which the file can be replaced polls once an hour, so that an
// event must have reported every change that it observes.

func TestConfigMapVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := follow(t, filepath.Join(dir, "config.yaml"), time.Hour)
	f.until("absent")
	for i := range 20 {
		want := fmt.Sprint("version ", i)
		swap(t, dir, i, want)
		f.until(want)
	}
}

func TestDirectoryExchangedAndTheOldOneDeleted(t *testing.T) {
	t.Parallel()
	for _, depth := range []string{"config.yaml", "in/it/config.yaml"} {
		t.Run(depth, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, "0", dir, "live", depth)
			f := follow(t, filepath.Join(dir, "live", depth), time.Hour)
			f.until("0")
			for i := range 20 {
				want := fmt.Sprint("version ", i)
				exchange(t, dir, depth, want)
				f.until(want)
			}
			write(t, "edited", dir, "live", depth)
			f.until("edited")
		})
	}
}

// Here directories are deleted before fsnotify has read that they were moved. It then
// sends an error while it holds its lock, and blocks until the error is received.
func TestDirectoryExchangedFasterThanItIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "0", dir, "live", "config.yaml")
	f := follow(t, filepath.Join(dir, "live", "config.yaml"), time.Hour)
	f.until("0")
	for i := range 500 {
		exchange(t, dir, "config.yaml", fmt.Sprint("version ", i))
	}
	f.until("version 499")
	write(t, "edited", dir, "live", "config.yaml")
	f.until("edited")
}

func TestRenamedOverAndEditedInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	f := follow(t, file, time.Hour)
	f.until("0")
	for i := range 10 {
		must(t, os.Rename(write(t, fmt.Sprint("renamed ", i), dir, "tmp"), file))
		f.until(fmt.Sprint("renamed ", i))
		write(t, fmt.Sprint("edited ", i), file)
		f.until(fmt.Sprint("edited ", i))
	}
}

func TestDirectoriesAppearMoveAndReturn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := follow(t, filepath.Join(dir, "a", "b", "config.yaml"), time.Hour)
	f.until("absent")
	for i := range 10 {
		want := fmt.Sprint("version ", i)
		write(t, want, dir, "a", "b", "config.yaml")
		f.until(want)
		must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "away")))
		f.until("absent")
		must(t, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "a")))
		f.until(want)
		must(t, os.RemoveAll(filepath.Join(dir, "a")))
		f.until("absent")
	}
}

func TestLinkRetargetedAtAnyLevel(t *testing.T) {
	t.Parallel()
	// The path is dir/first/file, where first -> mid/second, second -> ../{x,y}
	// in mid, and file -> an absolute path.
	dir := t.TempDir()
	for _, d := range []string{"x", "y"} {
		for _, v := range []string{"1", "2"} {
			write(t, d+v, dir, "data", d+v)
		}
		link(t, filepath.Join(dir, "data", d+"1"), dir, d, "file")
	}
	link(t, "../x", dir, "mid", "second")
	link(t, "../y", dir, "mid", "other")
	link(t, "mid/second", dir, "first")

	f := follow(t, filepath.Join(dir, "first", "file"), time.Hour)
	f.until("x1")
	link(t, filepath.Join(dir, "data", "x2"), dir, "x", "file")
	f.until("x2")
	link(t, "../y", dir, "mid", "second")
	f.until("y1")
	link(t, "./mid/../x", dir, "first")
	f.until("x2")
	link(t, "mid/other", dir, "first")
	f.until("y1")
	write(t, "edited at the far end", dir, "data", "y1")
	f.until("edited at the far end")
	link(t, "nowhere/yet", dir, "first")
	f.until("absent")
	write(t, "the target came", dir, "nowhere", "yet", "file")
	f.until("the target came")
	link(t, "first", dir, "first")
	f.until("too many levels of symbolic links")
	link(t, "x", dir, "first")
	f.until("x2")
}

func TestPollFindsChangesWithoutEvents(t *testing.T) {
	t.Parallel()
	elsewhere := write(t, "0", t.TempDir(), "file")
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.Link(elsewhere, file)) // for a write through another hard link there is no event
	f := follow(t, file, 10*time.Millisecond)
	f.until("0")
	write(t, "1", elsewhere)
	f.until("1")
}

func TestWithoutInotifyTheFileIsPolledUntilThereIsInotifyAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	w := New(file, 100)
	w.poll = time.Millisecond
	failures := 0
	again := make(chan struct{})
	w.open = func() (*fsnotify.Watcher, error) {
		if failures++; failures < 100 {
			return nil, unix.EMFILE
		}
		close(again)
		return fsnotify.NewWatcher()
	}
	f := run(t, w)
	f.until("0")
	must(t, os.Rename(write(t, "1", dir, "tmp"), file))
	f.until("1")
	select {
	case <-again:
	case <-time.After(waitLimit):
		t.Error("inotify was not tried again")
	}
}

func TestUnchangedContentAndALastingErrorAreReportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	f := follow(t, file, time.Millisecond)
	replace := func(data string) {
		must(t, os.Rename(write(t, data, dir, "tmp"), file))
		time.Sleep(5 * settle) // for the event and some polls
	}
	f.until("absent")
	replace("same")
	replace("same")
	replace(strings.Repeat("large", 100))
	replace(strings.Repeat("larger", 100))
	replace("other")
	for _, want := range []string{"same", "too large: the limit is 100 bytes", "other"} {
		if got := f.next(); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSlowCallerGetsTheLastContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	w := New(file, 100)
	w.poll = time.Hour
	f := &follower{t: t, got: make(chan string, 100)}
	leave := make(chan struct{})
	f.start(w, func(c Content) {
		f.got <- show(c)
		<-leave
	})
	f.until("0")
	for i := range 100 {
		must(t, os.Rename(write(t, fmt.Sprint("version ", i), dir, "tmp"), file))
	}
	close(leave)
	if got := f.next(); got != "version 99" {
		t.Errorf("got %q after the slow call, want the last version", got)
	}
}

func TestNothingGrows(t *testing.T) { // not parallel: counts what the process has open
	dir := t.TempDir()
	f := follow(t, filepath.Join(dir, "link", "config.yaml"), time.Hour)
	held := func() (n int) {
		infos, err := filepath.Glob("/proc/self/fdinfo/*")
		must(t, err)
		for _, info := range infos {
			data, _ := os.ReadFile(info) // the descriptor of the directory that was just read is closed
			n += 1 + strings.Count(string(data), "inotify wd:")
		}
		return n + runtime.NumGoroutine()
	}
	change := func(i int) {
		want := fmt.Sprint("version ", i)
		write(t, want, dir, fmt.Sprint(i), "config.yaml") // a folder that stays
		link(t, fmt.Sprint(i), dir, "link")
		f.until(want)
	}
	change(0) // may be read before anything is watched
	change(1)
	before := held()
	for i := range 100 {
		change(i + 2)
	}
	for deadline := time.Now().Add(waitLimit); held() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, descriptors and watches, were %d", held(), before)
		}
	}
}

// swap writes a version of a ConfigMap volume as the kubelet does; the numbers are those of
// Write in k8s.io/kubernetes/pkg/volume/util/atomic_writer.go.
func swap(t testing.TB, dir string, version int, data string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	old, _ := os.Readlink(in("..data")) // (2)
	ts := fmt.Sprintf("..2026_01_01_00_00_00.%09d", version)
	write(t, data, in(ts), "config.yaml")              // (5), (6)
	must(t, os.Symlink(ts, in("..data_tmp")))          // (8)
	must(t, os.Rename(in("..data_tmp"), in("..data"))) // (9)
	if old == "" {
		must(t, os.Symlink("..data/config.yaml", in("config.yaml"))) // (10)
	} else {
		must(t, os.RemoveAll(in(old))) // (12)
	}
}

// exchange replaces the content as OpenShift's cert-syncer does: a new directory
// atomically replaces dir/live, and the old one is deleted.
func exchange(t testing.TB, dir, file, data string) {
	live, next := filepath.Join(dir, "live"), filepath.Join(dir, "next")
	write(t, data, next, file)
	must(t, unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, live, unix.RENAME_EXCHANGE))
	must(t, os.RemoveAll(next))
}

// follower has the contents that a running Watcher has reported.
type follower struct {
	t   testing.TB
	got chan string
}

func follow(t testing.TB, path string, poll time.Duration) *follower {
	w := New(path, 100)
	w.poll = poll
	return run(t, w)
}

// run runs w until the test ends, and checks that Run returns then.
func run(t testing.TB, w *Watcher) *follower {
	f := &follower{t: t, got: make(chan string, 10_000)}
	f.start(w, func(c Content) { f.got <- show(c) })
	return f
}

func (f *follower) start(w *Watcher, onChange func(Content)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, onChange)
	}()
	f.t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(waitLimit):
			f.t.Error("Run did not return")
		}
	})
}

// next returns the next reported content.
func (f *follower) next() string {
	f.t.Helper()
	select {
	case c := <-f.got:
		return c
	case <-time.After(waitLimit):
		f.t.Fatalf("no content was reported in %s", waitLimit)
		return ""
	}
}

// until waits for this content, or for an error that ends with this text.
func (f *follower) until(want string) {
	f.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		c := f.next()
		if strings.HasSuffix(c, want) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("got %q, and no %q in %s", c, want, waitLimit)
		}
	}
}
