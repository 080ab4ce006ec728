//go:build linux

package filewatch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The ways in which the file can be replaced. Each test polls once an hour, so that
// every change it observes was delivered by an event.

func TestConfigMapVolume(t *testing.T) {
	t.Parallel()
	vol := newVolume(t)
	f := follow(t, vol.file, Options{})
	f.until("")
	for i := range 30 {
		want := fmt.Sprint("version ", i)
		vol.swap(want)
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
			f := follow(t, filepath.Join(dir, "live", depth), Options{})
			f.until("0")
			for i := range 30 {
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
	f := follow(t, filepath.Join(dir, "live", "config.yaml"), Options{Settle: 100 * time.Microsecond})
	f.until("0")
	for i := range 500 {
		exchange(t, dir, "config.yaml", fmt.Sprint("version ", i))
	}
	f.until("version 499")
	write(t, "edited", dir, "live", "config.yaml")
	f.until("edited")
}

func TestRenamedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "config.yaml")
	f := follow(t, file, Options{})
	f.until("0")
	for i := range 30 {
		want := fmt.Sprint("version ", i)
		must(t, os.Rename(write(t, want, dir, "tmp"), file))
		f.until(want)
	}
}

func TestHardLinkReplaced(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	must(t, os.Link(write(t, "one", elsewhere, "1"), file))
	f := follow(t, file, Options{})
	f.until("one")

	tmp := filepath.Join(dir, "tmp")
	must(t, os.Link(write(t, "two", elsewhere, "2"), tmp))
	must(t, os.Rename(tmp, file)) // ln -f
	f.until("two")

	must(t, os.Remove(file))
	f.until("absent")
	must(t, os.Link(filepath.Join(elsewhere, "1"), file))
	f.until("one")
}

func TestEditedInPlace(t *testing.T) {
	t.Parallel()
	file := write(t, "0", t.TempDir(), "config.yaml")
	f := follow(t, file, Options{Settle: time.Second}) // longer than any pause of a busy machine
	f.until("0")
	f.watching()

	// Each chunk waits until the one before has been noticed.
	add := func(h *os.File, chunk string) {
		n := f.wakes.Load()
		_, err := h.WriteString(chunk)
		must(t, err)
		f.eventually("the chunk to be noticed", func() bool { return f.wakes.Load() > n })
	}
	f.exactly("abc", func() { // truncated, then written in chunks: one call
		h, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
		must(t, err)
		for _, chunk := range []string{"a", "b", "c"} {
			add(h, chunk)
		}
		must(t, h.Close())
	})
	f.exactly("abcdef", func() { // appended to, opened each time
		for _, chunk := range []string{"d", "e", "f"} {
			h, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			add(h, chunk)
			must(t, h.Close())
		}
	})
}

func TestAppearsLater(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"config.yaml", "a/config.yaml", "a/b/c/d/config.yaml"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := follow(t, filepath.Join(dir, path), Options{})
			if c := f.next(); !errors.Is(c.Err, fs.ErrNotExist) {
				t.Fatalf("got %v, want an error that wraps fs.ErrNotExist", show(c))
			}
			f.watching()

			// All at once, then again level by level, each seen on its own.
			write(t, "here", dir, path)
			f.until("here")
			must(t, os.RemoveAll(filepath.Join(dir, strings.SplitN(path, "/", 2)[0])))
			f.until("absent")
			for at, rest := dir, path; ; {
				name, more, deeper := strings.Cut(rest, "/")
				n := f.reads.Load()
				if !deeper {
					write(t, "here again", at, name)
					break
				}
				at, rest = filepath.Join(at, name), more
				must(t, os.Mkdir(at, 0o755))
				f.eventually("a read of the new directory", func() bool { return f.reads.Load() > n })
			}
			f.until("here again")
		})
	}
}

// With each round the new directory is likely to have the inode number of the old.
func TestDirectoryRemovedAndMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "a", "b", "config.yaml")
	f := follow(t, file, Options{Settle: time.Millisecond})
	f.until("0")
	for i := range 50 {
		want := fmt.Sprint("version ", i)
		must(t, os.RemoveAll(filepath.Join(dir, "a")))
		if i%2 == 0 {
			f.until("absent")
		}
		write(t, want, dir, "a", "b", "config.yaml")
		f.until(want)
		write(t, want+" edited", dir, "a", "b", "config.yaml")
		f.until(want + " edited")
	}
}

func TestDirectoryMovedAwayAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "0", dir, "a", "config.yaml")
	f := follow(t, file, Options{})
	f.until("0")
	for i := range 10 {
		must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "away")))
		if i%2 == 0 {
			f.until("absent")
		}
		must(t, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "a")))
		want := fmt.Sprint("version ", i)
		write(t, want, dir, "a", "config.yaml")
		f.until(want)
	}
}

func TestLinkRetargetedAtAnyLevel(t *testing.T) {
	t.Parallel()
	// The path goes dir/first/file, where first -> mid/second, second -> ../{x,y}
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

	f := follow(t, filepath.Join(dir, "first", "file"), Options{})
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

func TestReplacedByOtherThanARegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "config.yaml")
	f := follow(t, file, Options{MaxSize: 8})
	f.until("absent")
	for _, c := range []struct {
		make func()
		want string
	}{
		{func() { must(t, os.Mkdir(file, 0o755)) }, "is a directory"},
		{func() { must(t, unix.Mkfifo(file, 0o644)) }, "not a regular file (mode prw-r--r--)"},
		{func() { link(t, "/dev/zero", file) }, "not a regular file (mode Dcrw-rw-rw-)"},
		{func() { write(t, "nine byte", file) }, "too large: 9 bytes or more, the limit is 8"},
		{func() { write(t, "eight by", file) }, "eight by"},
		{func() { link(t, "/proc/version", file) }, "too large: 9 bytes or more"}, // reports a size of 0
		{func() { must(t, os.Remove(filepath.Dir(file))); write(t, "", dir, "a") }, "not a directory"},
	} {
		must(t, os.RemoveAll(file))
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		c.make()
		f.until(c.want)
	}
}

func TestOtherThanARegularFileIsNotOpened(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o644))
	opens, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer unix.Close(opens)
	_, err = unix.InotifyAddWatch(opens, fifo, unix.IN_OPEN)
	must(t, err)
	if c := Read(fifo, 10); c.Err == nil {
		t.Errorf("read %q from a FIFO", c.Data)
	}
	if n, err := unix.Read(opens, make([]byte, 1024)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the kernel reported an open (%d, %v)", n, err)
	}
}

// volume is a ConfigMap volume as kubelet writes it; the numbers are those of
// Write in k8s.io/kubernetes/pkg/volume/util/atomic_writer.go.
type volume struct {
	t         testing.TB
	dir, file string
	n         int
}

func newVolume(t testing.TB) *volume {
	dir := t.TempDir()
	return &volume{t: t, dir: dir, file: filepath.Join(dir, "config.yaml")}
}

// swap makes data the current content, and returns the time of the switch.
func (v *volume) swap(data string) time.Time {
	v.n++
	in := func(name string) string { return filepath.Join(v.dir, name) }
	old, _ := os.Readlink(in("..data")) // (2)
	ts := fmt.Sprintf("..2026_01_01_00_00_00.%09d", v.n)
	must(v.t, os.Mkdir(in(ts), 0o755)) // (5)
	must(v.t, os.Chmod(in(ts), 0o755))
	write(v.t, data, in(ts), "config.yaml") // (6)
	must(v.t, os.Chmod(in(ts+"/config.yaml"), 0o644))
	must(v.t, os.Symlink(ts, in("..data_tmp"))) // (8)
	at := time.Now()
	must(v.t, os.Rename(in("..data_tmp"), in("..data"))) // (9)
	if old == "" {
		must(v.t, os.Symlink("..data/config.yaml", v.file)) // (10)
	} else {
		must(v.t, os.RemoveAll(in(old))) // (12)
	}
	return at
}

// exchange replaces the content as OpenShift's cert-syncer does: a new directory
// atomically replaces dir/live, and the old one is deleted.
func exchange(t testing.TB, dir, file, data string) {
	live, next := filepath.Join(dir, "live"), filepath.Join(dir, "next")
	write(t, data, next, file)
	must(t, unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, live, unix.RENAME_EXCHANGE))
	must(t, os.RemoveAll(next))
}
