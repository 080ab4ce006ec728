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
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// folders runs a reporter, and mounts file systems in the folders of its sockets.
type folders struct {
	*testing.T
	dir   string
	child *program.Child
	log   program.Output
}

func newFolders(t *testing.T) *folders {
	return &folders{T: t, dir: program.SocketDir(t)}
}

func (f *folders) must(err error) {
	f.Helper()
	must.Succeed(f.T, err)
}

func (f *folders) awaitLog(text string) {
	f.Helper()
	f.log.Await(f.T, time.Minute, text)
}

// mount mounts, and unmounts at the end of the test.
func (f *folders) mount(source, target, kind string, flags uintptr, data string) {
	f.must(unix.Mount(source, target, kind, flags, data))
	f.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func (f *folders) mkdir(parts ...string) string {
	path := filepath.Join(append([]string{f.dir}, parts...)...)
	f.must(os.MkdirAll(path, 0o755))
	return path
}

// report starts a reporter with two plugins. Plugin 1 does not listen on its socket in the folder "sockets". Plugin 2
// is healthy and returned.
func (f *folders) report() *kmsplugin.Plugin {
	healthy := "unix://" + f.dir + "/kms-2.sock"
	two := kmsplugin.StartForTest(f.T, kmsplugin.Options{Endpoint: healthy, StateDir: f.mkdir("state")})
	file := filepath.Join(f.dir, "config.yaml")
	disk.Write(f.T, file, fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
plugins:
- {endpoint: 'unix://%s/sockets/kms-1.sock', role: Read}
- {endpoint: '%s', role: Write}
`, f.dir, healthy))
	f.run("--config", file)
	return two
}

// run starts the reporter.
func (f *folders) run(args ...string) {
	reporter, err := program.Build(f.dir, "cmd/kms-health-reporter")
	f.must(err)
	cmd := exec.Command(reporter, args...)
	cmd.Stderr = &f.log
	f.child = program.Start(f.T, cmd)
}

// hang mounts a file system that never answers at a path.
func (f *folders) hang(path string) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	f.must(err)
	f.Cleanup(func() { _ = unix.Close(fuse) }) // unblocks the waiting processes
	f.mount("hung", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse))
}

// end sends SIGTERM. The reporter ends itself after 2 s, and must not need more than a pod's grace period of 5 s.
func (f *folders) end() {
	if _, took := f.child.End(f.T, 30*time.Second, syscall.SIGTERM); took > 5*time.Second {
		f.Errorf("it took %s to end", took)
	}
}

// keepsThreads requires that the probes do not block one more thread each.
func (f *folders) keepsThreads() {
	threads := func() int {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", f.child.Process.Pid))
		f.must(err)
		return len(tasks)
	}
	before := threads()
	time.Sleep(8 * time.Second) // as many probes
	if now := threads(); now > before+2 {
		f.Errorf("%d threads, then %d: each probe costs one", before, now)
	}
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
	f.must(two.WaitForCalls(ctx, kmsplugin.CallStatus, two.Calls(kmsplugin.CallStatus).Count+3)) // the other one
	f.keepsThreads()
	f.end()
}

// An open connection still works, but a restarted kube-apiserver could not connect.
func TestFileSystemOfAConnectedSocketHangs(t *testing.T) {
	f := newFolders(t)
	f.report()
	f.awaitLog(`"Plugin is healthy" keyID="2"`)
	f.hang(f.dir)
	f.awaitLog(`"Plugin is not healthy" keyID="2" socket="` + f.dir + `/kms-2.sock" status="error" reason="Timeout"`)
	f.keepsThreads()
	f.end()
}

func TestFileSystemOfTheConfigurationHangs(t *testing.T) {
	f := newFolders(t)
	hung := f.mkdir("hung")
	f.hang(hung)
	f.run("--config", hung+"/config.yaml")
	f.awaitLog("Starting")
	time.Sleep(2 * time.Second) // the reporter waits for the file meanwhile
	f.end()
}
