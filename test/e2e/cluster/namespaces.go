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

// namespaces are those of a process, named by its id.
type namespaces int

// In the order in which they are entered; mnt is last, for it hides /proc.
var allNamespaces = []string{"uts", "ipc", "net", "pid", "mnt"}

// start starts cmd in the namespaces of these kinds. A thread enters them, forks,
// and ends with the child.
func (n namespaces) start(name string, cmd *exec.Cmd, kinds ...string) (*controlplane.Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// In the node's own process ids it dies with the node's first process; and os/exec
	// treats a parent that it cannot see there as one that has exited.
	if !slices.Contains(kinds, "pid") {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return controlplane.StartCommand(name, cmd, func() error { return n.enter(kinds...) })
}

// enter takes the calling thread, which must be locked, into namespaces.
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

// dial connects to an IP address as a process in the network namespace does: a socket stays
// in the namespace that it is made in.
func (n namespaces) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		if err = n.enter("net"); err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}
