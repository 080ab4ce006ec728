//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// folders runs a reporter, and mounts file systems in the folders of its sockets.
type folders struct {
	t     *testing.T
	dir   string
	child *program.Child
	log   program.Output
}

func (f *folders) awaitLog(text string) {
	f.t.Helper()
	f.log.Await(f.t, time.Minute, text)
}

// mount mounts, and unmounts at the end of the test.
func (f *folders) mount(source, target, kind string, flags uintptr, data string) {
	f.t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		f.t.Fatalf("mount %s: %v", target, err)
	}
	f.t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func (f *folders) mkdir(parts ...string) string {
	f.t.Helper()
	path := filepath.Join(append([]string{f.dir}, parts...)...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// report starts a reporter with two plugins. Plugin 1 does not listen on its socket in the folder "sockets". Plugin 2
// is healthy and returned.
func (f *folders) report() *kmsplugin.Plugin {
	f.t.Helper()
	healthy := "unix://" + f.dir + "/kms-2.sock"
	two := kmsplugin.StartForTest(f.t, kmsplugin.Options{Endpoint: healthy, StateDir: f.mkdir("state")})
	file := filepath.Join(f.dir, "config.yaml")
	text := fmt.Sprintf("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe: {interval: 1s}\nplugins:\n- {endpoint: 'unix://%s/sockets/kms-1.sock', role: Read}\n- {endpoint: '%s', role: Write}\n", f.dir, healthy)
	disk.Write(f.t, file, []byte(text))
	f.run("--config", file)
	return two
}

// run starts the reporter.
func (f *folders) run(args ...string) {
	f.t.Helper()
	reporter, err := program.Build(f.dir, "cmd/kms-health-reporter")
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := exec.Command(reporter, args...)
	cmd.Stderr = &f.log
	f.child = program.Start(f.t, cmd)
}

// hang mounts a file system that never answers at a path.
func (f *folders) hang(path string) {
	f.t.Helper()
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = unix.Close(fuse) }) // unblocks the waiting processes
	f.mount("hung", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse))
}

// end sends SIGTERM. The reporter ends itself after 2 s, and must not need more than a pod's grace period of 5 s.
func (f *folders) end(what string) {
	f.t.Helper()
	_, took := f.child.End(f.t, 30*time.Second, syscall.SIGTERM)
	if took > 5*time.Second {
		f.t.Errorf("it took %s to end while %s", took, what)
	}
}

// threads returns the number of the reporter's threads.
func (f *folders) threads() int {
	f.t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", f.child.Process.Pid))
	if err != nil {
		f.t.Fatal(err)
	}
	return len(tasks)
}

func newFolders(t *testing.T) *folders {
	t.Helper()
	dir := program.SocketDir(t)
	return &folders{t: t, dir: dir}
}

// A hanging file system (a stopped NFS or FUSE server) blocks every process that uses it, and no signal interrupts
// that.
func TestFileSystemOfTheSocketsHangs(t *testing.T) {
	f := newFolders(t)
	// The path is like a kubelet's emptyDir, where the reporter checks for a missing socket all the time.
	volume, sockets := f.mkdir("kubernetes.io~empty-dir", "kms"), f.mkdir("sockets")
	f.mount(volume, sockets, "", unix.MS_BIND, "")
	two := f.report()
	f.awaitLog("SocketMissing")

	f.hang(sockets)
	time.Sleep(2 * time.Second) // the socket is checked and probed meanwhile

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := two.WaitForCalls(ctx, kmsplugin.CallStatus, two.Calls(kmsplugin.CallStatus).Count+3); err != nil {
		t.Errorf("the other plugin is not probed any more: %v", err)
	}
	f.keepsThreads()
	f.end("the sockets' file system hangs")
}

// keepsThreads requires that the probes do not block one more thread each.
func (f *folders) keepsThreads() {
	f.t.Helper()
	before := f.threads()
	time.Sleep(8 * time.Second) // as many probes
	if now := f.threads(); now > before+2 {
		f.t.Errorf("%d threads, then %d: each probe costs one", before, now)
	}
}

// An open connection still works, but a restarted kube-apiserver could not connect.
func TestFileSystemOfAConnectedSocketHangs(t *testing.T) {
	f := newFolders(t)
	f.report()
	f.awaitLog(`"Plugin is healthy" keyID="2"`)
	f.hang(f.dir)
	f.awaitLog(`"Plugin is not healthy" keyID="2" socket="` + f.dir + `/kms-2.sock" status="error" reason="Timeout"`)
	f.keepsThreads()
	f.end("the socket's file system hangs")
}

func TestFileSystemOfTheConfigurationHangs(t *testing.T) {
	f := newFolders(t)
	hung := f.mkdir("hung")
	f.hang(hung)
	f.run("--config", hung+"/config.yaml")
	f.awaitLog("Starting")
	time.Sleep(2 * time.Second) // the reporter waits for the file meanwhile
	f.end("the configuration's file system hangs")
}

// If a folder of the host is deleted and created again, mounts still show the former one.
func TestDeletedFolderOfTheHostIsReported(t *testing.T) {
	f := newFolders(t)
	host, sockets := f.mkdir("host"), f.mkdir("sockets")
	f.mount(host, sockets, "", unix.MS_BIND, "")
	f.report()
	f.awaitLog("no such file or directory")
	if err := os.Remove(host); err != nil {
		t.Fatal(err)
	}
	f.mkdir("host")
	f.awaitLog("what is mounted was deleted on the host, and mounts of pods still show the deleted one")
}
