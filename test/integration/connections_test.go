//go:build integration

package integration

import (
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestConnectionsToTheServedPortTakeNoDescriptorsFromProbesAndWrites(t *testing.T) {
	const connections, descriptors = 1500, 128
	r, one := reporting(t, "Condition")
	limit := unix.Rlimit{Cur: descriptors, Max: descriptors}
	if err := unix.Prlimit(r.process.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	for i := range connections {
		conn, err := net.DialTimeout("tcp", r.serving, waitLimit)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	began := time.Now()
	if code, text := r.get("/metrics"); code != http.StatusOK || time.Since(began) > 4*time.Second {
		t.Errorf("a scrape took %s: %d %s", time.Since(began), code, text)
	}
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+2); err != nil {
		t.Errorf("no longer probed: %v", err)
	}
	if n := r.metric("kms_health_reporter_probes_total", "status", "error"); n != 0 {
		t.Errorf("%v probes ended with an error", n)
	}
	// A plugin that restarts is connected to anew, which takes a descriptor.
	if err := one.Crash(); err != nil {
		t.Fatal(err)
	}
	r.logged("Plugin is not healthy", "connect")
	if err := one.Return(); err != nil {
		t.Fatal(err)
	}
	r.logged("Plugin is healthy")
	r.writes("Condition", "success")
	r.freshCondition(controlplane.KubeAPIServers, "1=healthy")
	if n := r.count("too many open files"); n != 0 {
		t.Errorf("%d lines of the log are about its own descriptors", n)
	}
}
