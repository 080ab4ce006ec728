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

// Limits and permissions of the host. These tests run in a child process, and where
// possible in its own user namespace, so that they exhaust no resource of other processes.

func TestWithoutInotifyInstances(t *testing.T) {
	t.Parallel()
	if !inChild(t, 0) {
		return
	}
	if err := limit("max_inotify_instances", "3"); err != nil {
		t.Logf("exhausting the limit of the user instead: %v", err)
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
	f.withoutEvents("max_user_instances")
	vol.swap("by the poll")
	f.until("by the poll")
	vol.swap("by the poll again")
	f.until("by the poll again")
	f.withoutEvents("max_user_instances")
	for _, fd := range used {
		must(t, unix.Close(fd))
	}
	f.watching()
	if kernelWatches(t) == 0 {
		t.Error("the kernel has no watch")
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
	f.withoutEvents("max_user_watches")
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
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o311)) // may be traversed, but not listed
	f := follow(t, file, Options{Poll: 20 * time.Millisecond})
	f.until("0")
	f.withoutEvents("permission denied")
	// The file's own directory is still watched. The directory above it is not:
	must(t, os.Rename(filepath.Join(dir, "a", "b"), filepath.Join(dir, "a", "c")))
	f.until("absent")
	must(t, os.Rename(filepath.Join(dir, "a", "c"), filepath.Join(dir, "a", "b")))
	f.until("0")
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o755))
	f.watching()
}

func TestPermissionRevokedAndGranted(t *testing.T) {
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
	must(t, os.Chmod(filepath.Dir(file), 0o600)) // may be listed, but not traversed
	f.until("permission denied")
	must(t, os.Chmod(filepath.Dir(file), 0o755))
	f.until("0")
}

// withoutEvents waits until the Watcher reports that it receives no events, and why.
func (f *follower) withoutEvents(why string) {
	f.t.Helper()
	f.eventually("not watching, because of "+why, func() bool {
		ok, err := f.w.Watching()
		return !ok && err != nil && strings.Contains(err.Error(), why)
	})
}

// limit sets a limit of the user namespace, if the process owns the namespace.
func limit(name, value string) error {
	return os.WriteFile("/proc/sys/user/"+name, []byte(value), 0)
}

// inChild runs the calling test again, alone in a child process, and returns true
// there. The child has its own user namespace and the given user ID in it: 0 may set
// the namespace's limits; any other ID is subject to file modes even when the parent
// is root. If no namespace can be created, a child with ID 0 runs without one.
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
