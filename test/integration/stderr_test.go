//go:build integration

package integration

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// The log of a reporter is not read while its container runtime hangs.
func TestReportsContinueWhileStandardErrorIsNotRead(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = read.Close(), write.Close() }()
	if err := write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until the pipe is full
		_, err = write.Write(make([]byte, 4096))
	}
	cmd := exec.Command(binary, "--config", r.file, "--node-name", r.node)
	cmd.Stderr = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	r.freshCondition(resource, "1=healthy")
	if err := one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy}); err != nil {
		t.Fatal(err)
	}
	r.freshCondition(resource, "1=unhealthy")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Second):
		t.Error("SIGTERM did not end it within 3 seconds")
	}
}
