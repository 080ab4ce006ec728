//go:build integration

package integration

import (
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/must"
)

func TestConnectionsToTheServedPortTakeNoDescriptorsFromProbesAndWrites(t *testing.T) {
	const connections, descriptors = 1500, 128
	r, one := reporting(t)
	limit := unix.Rlimit{Cur: descriptors, Max: descriptors}
	must.Succeed(t, unix.Prlimit(r.process.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil))
	var held []net.Conn
	for range connections {
		conn, err := net.DialTimeout("tcp", r.serving, waitLimit)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		held = append(held, conn)
	}
	probes(t, one, 2)
	// The reporter connects again to a restarted plugin, for which it needs a file descriptor.
	must.Succeed(t, one.Crash())
	r.logged("Plugin is not healthy", "connect")
	must.Succeed(t, one.Return())
	r.logged("Plugin is healthy")
	r.freshCondition("1=healthy")
	for _, conn := range held {
		_ = conn.Close()
	}
	eventually(t, "the port is served again", func() bool { code, _ := r.get("/metrics"); return code == http.StatusOK })
	if n := r.count("too many open files"); n != 0 {
		t.Errorf("%d lines of the log are about its own descriptors", n)
	}
}
