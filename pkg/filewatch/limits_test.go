//go:build linux

package filewatch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the host may deny. These tests run in a process of their own, and where
// possible in a user namespace of its own, so that what they use up is nobody
// else's.

func TestWithoutInotifyInstances(t *testing.T) {
	t.Parallel()
	if !inChild(t, 0) {
		return
	}
	if err := limit("max_inotify_instances", "3"); err != nil {
		t.Logf("using up those of the user, as %v", err)
	}
	var used []int
	for {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		must(t, err)
		used = append(used, fd)
	}
	t.Logf("%d instances used up", len(used))

	vol := newVolume(t)
	f := follow(t, vol.file, Options{Poll: 20 * time.Millisecond})
	f.until("absent")
	f.deaf("max_user_instances")
	vol.swap("by the poll")
	f.until("by the poll")
	vol.swap("by the poll again")
	f.until("by the poll again")
	f.deaf("max_user_instances")
	for _, fd := range used {
		must(t, unix.Close(fd))
	}
	f.watching()
	if kernelWatches(t) == 0 {
		t.Error("the kernel knows of no watch")
	}
}

func TestWithoutInotifyWatches(t *testing.T) {
	t.Parallel()
	if !inChild(t, 0) {
		return
	}
	if err := limit("max_inotify_watches", "2"); err != nil {
		t.Skip(err)
	}
	vol := newVolume(t)
	vol.swap("0")
	f := follow(t, vol.file, Options{Poll: 20 * time.Millisecond})
	f.until("0")
	f.deaf("max_user_watches")
	vol.swap("by the poll")
	f.until("by the poll")
	must(t, limit("max_inotify_watches", "100"))
	f.watching()
}

func TestUnreadableDirectoryOnTheWay(t *testing.T) {
	t.Parallel()
	if !inChild(t, 1000) {
		return
	}
	dir := t.TempDir()
	file := write(t, "0", dir, "a", "b", "config.yaml")
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o311)) // may be passed, but not listed
	f := follow(t, file, Options{Poll: 20 * time.Millisecond})
	f.until("0")
	f.deaf("permission denied")
	// The file's own directory is watched nevertheless; what is not, is this:
	must(t, os.Rename(filepath.Join(dir, "a", "b"), filepath.Join(dir, "a", "c")))
	f.until("absent")
	must(t, os.Rename(filepath.Join(dir, "a", "c"), filepath.Join(dir, "a", "b")))
	f.until("0")
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o755))
	f.watching()
}

func TestPermissionTakenAndGiven(t *testing.T) {
	t.Parallel()
	if !inChild(t, 1000) {
		return
	}
	file := write(t, "0", t.TempDir(), "a", "config.yaml")
	f := follow(t, file, Options{})
	f.until("0")
	f.watching()
	must(t, os.Chmod(file, 0))
	f.until("read " + file + ": permission denied")
	must(t, os.Chmod(file, 0o644))
	f.until("0")
	must(t, os.Chmod(filepath.Dir(file), 0o600)) // may be listed, but not passed
	f.until("permission denied")
	must(t, os.Chmod(filepath.Dir(file), 0o755))
	f.until("0")
}

// deaf waits until the Watcher says that it receives no events, and why.
func (f *follower) deaf(why string) {
	f.t.Helper()
	f.eventually("not watching, because of "+why, func() bool {
		ok, err := f.w.Watching()
		return !ok && err != nil && strings.Contains(err.Error(), why)
	})
}

// limit sets a limit of our user namespace, if it is our own.
func limit(name, value string) error {
	return os.WriteFile("/proc/sys/user/"+name, []byte(value), 0)
}

// inChild runs the calling test again, alone in a new process, where it returns
// true. The process has a user namespace of its own, with the given id: with 0 it
// may set that namespace's limits, with another it is bound by file modes even if
// we are root. Where there are no namespaces to be had, it does without, if 0.
func inChild(t *testing.T, uid int) bool {
	const mark = "FILEWATCH_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	child := func(attr *syscall.SysProcAttr) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), mark+"="+t.Name())
		cmd.SysProcAttr = attr
		return cmd.CombinedOutput()
	}
	out, err := child(&syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getegid(), Size: 1}},
	})
	if err != nil && len(out) == 0 { // it did not start
		switch {
		case uid != 0 && os.Geteuid() == 0:
			t.Skipf("no user namespaces: %v", err)
		default:
			out, err = child(nil)
		}
	}
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.SkipNow()
	}
	return false
}
