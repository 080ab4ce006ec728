//go:build integration

package integration

import (
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestConnectionsToTheServedPortTakeNoDescriptorsFromProbesAndWrites(t *testing.T) {
	const connections, descriptors = 1500, 128
	r, one := reporting(t)
	limit := unix.Rlimit{Cur: descriptors, Max: descriptors}
	if err := unix.Prlimit(r.process.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	for i := range connections {
		conn, err := net.DialTimeout("tcp", r.serving, waitLimit)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		held = append(held, conn)
	}
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+2); err != nil {
		t.Errorf("no longer probed: %v", err)
	}
	// The reporter connects again to a restarted plugin, for which it needs a file descriptor.
	if err := one.Crash(); err != nil {
		t.Fatal(err)
	}
	r.logged("Plugin is not healthy", "connect")
	if err := one.Return(); err != nil {
		t.Fatal(err)
	}
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
