//go:build linux

package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit bounds the wait for an event, also on a busy machine. Usually an event takes less than a hundredth of it.
const waitLimit = 30 * time.Second

// The file is polled only once an hour, so an event must have reported each change.
func TestEachKindOfReplacementIsReportedByAnEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path    string // of the file, in the folder
		replace func(t testing.TB, dir, data string, i int)
	}{
		"ConfigMap volume": {"config.yaml", func(t testing.TB, dir, data string, _ int) {
			must.Succeed(t, disk.WriteVolume(dir, map[string]string{"config.yaml": data}))
		}},
		"directory exchanged": {"live/config.yaml", func(t testing.TB, dir, data string, _ int) { exchange(t, dir, "config.yaml", data) }},
		"link into a directory that is exchanged": {"config.yaml", func(t testing.TB, dir, data string, _ int) {
			exchange(t, dir, "config.yaml", data)
			_ = os.Symlink("live/config.yaml", dir+"/config.yaml")
		}},
		"renamed over":    {"config.yaml", func(t testing.TB, dir, data string, _ int) { rename(t, data, dir+"/config.yaml") }},
		"edited in place": {"config.yaml", func(t testing.TB, dir, data string, _ int) { write(t, data, dir, "config.yaml") }},
		"link": {"config.yaml", func(t testing.TB, dir, data string, i int) {
			link(t, write(t, data, dir, "data", fmt.Sprint(i)), dir, "config.yaml")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := follow(t, filepath.Join(dir, tt.path), time.Hour)
			f.until("absent")
			for i := range 10 {
				want := fmt.Sprint("version ", i)
				tt.replace(t, dir, want, i)
				f.until(want)
			}
		})
	}
}

// Directories are deleted before fsnotify has read that they were moved. fsnotify then sends an error while it holds
// its lock, and blocks until the error is received.
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

func TestPollFindsChangesWithoutEvents(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t testing.TB, dir, data string){
		"through another hard link": func(t testing.TB, dir, data string) {
			must.Succeed(t, os.MkdirAll(dir+"/a/b", 0o755))
			write(t, data, dir, "other")
			_ = os.Remove(dir + "/a/b/file")
			must.Succeed(t, os.Link(dir+"/other", dir+"/a/b/file"))
			write(t, data+" edited", dir, "other")
		},
		"of a link's target": func(t testing.TB, dir, data string) {
			link(t, write(t, data, dir, "other"), dir, "a/b/file")
			write(t, data+" edited", dir, "other")
		},
		"of a directory above": func(t testing.TB, dir, data string) {
			write(t, data+" edited", dir, "away/b/file")
			must.Succeed(t, os.RemoveAll(dir+"/a"))
			must.Succeed(t, os.Rename(dir+"/away", dir+"/a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := follow(t, filepath.Join(dir, "a/b/file"), 10*time.Millisecond)
			for i := range 10 {
				change(t, dir, fmt.Sprint("version ", i))
				f.until(fmt.Sprintf("version %d edited", i))
			}
		})
	}
}

func TestWithoutInotifyTheFileIsPolledUntilThereIsInotifyAgain(t *testing.T) {
	t.Parallel()
	file := write(t, "0", t.TempDir(), "config.yaml")
	w := New(file, 100)
	w.poll = time.Millisecond
	failures, again := 0, make(chan struct{})
	w.open = func() (*fsnotify.Watcher, error) {
		if failures++; failures < 100 {
			return nil, unix.EMFILE
		}
		close(again)
		return fsnotify.NewWatcher()
	}
	f := run(t, w)
	f.until("0")
	rename(t, "1", file)
	f.until("1")
	select {
	case <-again:
	case <-time.After(waitLimit):
		t.Error("inotify was not tried again")
	}
}

func TestUnchangedContentAndALastingErrorAreReportedOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	f := follow(t, file, time.Millisecond)
	f.until("absent")
	for _, data := range []string{"same", "same", strings.Repeat("large", 100), strings.Repeat("larger", 100), "other"} {
		rename(t, data, file)
		time.Sleep(5 * settle) // for the event and some polls
	}
	for _, want := range []string{"same", "too large: the limit is 100 bytes", "other"} {
		if got := f.next(); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSlowCallerGetsTheLastContent(t *testing.T) {
	t.Parallel()
	file := write(t, "0", t.TempDir(), "config.yaml")
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
		rename(t, fmt.Sprint("version ", i), file)
	}
	close(leave)
	if got := f.next(); got != "version 99" {
		t.Errorf("got %q after the slow call, want the last version", got)
	}
}

// The file may be replaced by anything: reading it must end, with bounded memory.
func TestOnlyRegularFilesWithinTheLimitAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must.Succeed(t, unix.Mkfifo(fifo, 0o644))
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
	must.Succeed(t, unix.Mkfifo(fifo, 0o600))
	go func() { _ = os.WriteFile(fifo, []byte("text"), 0o600) }()
	for path, want := range map[string]string{
		"-": "text", "/dev/stdin": "text", fifo: "text", write(t, "text", dir, "file"): "text",
		"/no/such/file": "absent", dir: "is a directory", "/dev/zero": "too large: the limit is 4 bytes",
	} {
		if got := show(ReadOnce(path, strings.NewReader("text"), 4)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := show(ReadOnce("-", strings.NewReader("text"), 3)); got != "read standard input: too large: the limit is 3 bytes" {
		t.Error(got)
	}
}

// show returns the content or the error as a text, "absent" for a file that does not exist.
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

// write writes the file in place, and creates missing directories.
func write(t testing.TB, data string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Succeed(t, os.WriteFile(file, []byte(data), 0o644))
	return file
}

// rename replaces the file in one step.
func rename(t testing.TB, data, file string) {
	t.Helper()
	must.Succeed(t, os.Rename(write(t, data, file+".new"), file))
}

// link replaces the path by a symbolic link in one step.
func link(t testing.TB, target string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Succeed(t, os.Symlink(target, file+".link"))
	must.Succeed(t, os.Rename(file+".link", file))
}

// exchange replaces the content as OpenShift's cert-syncer does: a new directory
// atomically replaces dir/live, and the old one is deleted.
func exchange(t testing.TB, dir, file, data string) {
	live, next := filepath.Join(dir, "live"), filepath.Join(dir, "next")
	must.Succeed(t, os.MkdirAll(live, 0o755))
	write(t, data, next, file)
	must.Succeed(t, unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, live, unix.RENAME_EXCHANGE))
	must.Succeed(t, os.RemoveAll(next))
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
		<-done
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
	for !strings.HasSuffix(f.next(), want) {
		continue
	}
}
