//go:build integration

package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// pluginProcess starts the development plugin as a separate process, which the test can stop by SIGSTOP.
func (r *reporter) pluginProcess(keyID string) *os.Process {
	r.t.Helper()
	path, err := program.Build(r.t.TempDir(), "test/kmsplugin/cmd/kms-plugin")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(path, "--endpoint", r.endpoint(keyID), "--state-dir", filepath.Join(r.dir, "state-"+keyID))
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

func TestReporterEndsWhileSomethingHangs(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	plugins := []*os.Process{r.pluginProcess("1"), r.pluginProcess("2")}
	r.configure(resource, "1:Write", "2:Read")
	cmd := exec.Command(binary, "--config", r.file, "--node-name", r.node, "--output", "-")
	cmd.Stdout, cmd.Stderr = program.FullPipe(t), program.FullPipe(t)
	child := program.Start(t, cmd)
	r.freshCondition("1=healthy", "2=healthy") // although its output is not read

	for _, p := range plugins {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	r.freshCondition("1=error", "2=error")
	if err := cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.ThawAPIServer(); err != nil {
			t.Fatal(err)
		}
	})
	time.Sleep(3 * time.Second) // until every goroutine of the reporter is blocked
	code, took := child.End(t, waitLimit, syscall.SIGTERM)
	t.Logf("two stopped plugins, full stdout and stderr, a hanging API server: ended after %s", took.Round(time.Millisecond))
	if took > 25*time.Second { // 2 s on an idle machine; a kubelet kills it after 30 s
		t.Errorf("it took %s to end", took)
	}
	if code != 0 {
		t.Errorf("ended with %d", code)
	}
}

func TestReporterRunsAfterTheReadersOfItsOutputClosed(t *testing.T) {
	r := newReporter(t)
	one := r.plugin("1")
	r.configure("", "1:Write")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", r.file, "--output", "-")
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 3); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
