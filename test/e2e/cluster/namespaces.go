package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// namespaces are the Linux namespaces of the process with this id.
type namespaces int

// In the order in which they are entered. mnt is last, because it hides the host's /proc.
var allNamespaces = []string{"uts", "ipc", "net", "pid", "mnt"}

// start starts cmd in namespaces of these kinds. A thread enters them, forks, and ends with the child.
func (n namespaces) start(name string, cmd *exec.Cmd, kinds ...string) (*controlplane.Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// In the node's PID namespace the child ends with the node's first process. Pdeathsig would fail there: os/exec does
	// not see the parent, and takes it as exited.
	if !slices.Contains(kinds, "pid") {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return controlplane.StartCommand(name, cmd, func() error { return n.enter(kinds...) })
}

// enter moves the calling thread, which must be locked, into namespaces.
func (n namespaces) enter(kinds ...string) error {
	files := make([]*os.File, 0, len(kinds))
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, kind := range kinds {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(int(n)), "ns", kind))
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	// A thread that shares its root with others cannot change it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s: %w", f.Name(), err)
		}
	}
	return nil
}

// dial connects to an IP address from the network namespace. The socket stays in that namespace.
func (n namespaces) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err = n.enter("net"); err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}
