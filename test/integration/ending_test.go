//go:build integration

package integration

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporterEndsWhileSomethingHangs(t *testing.T) {
	r := newReporter(t)
	plugins := []*kmsplugin.Plugin{r.plugin("1"), r.plugin("2")}
	r.configure(toKube, "1:Write", "2:Read")
	cmd := exec.Command(binary, "--config", r.file, "--node-name", r.node, "--output", "-")
	cmd.Stdout, cmd.Stderr = program.FullPipe(t), program.FullPipe(t)
	child := program.Start(t, cmd)
	r.freshCondition("1=healthy", "2=healthy") // although its output is not read

	for _, p := range plugins {
		must.Succeed(t, p.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultHang, Args: []string{"all"}}))
	}
	r.freshCondition("1=error", "2=error")
	must.Succeed(t, cluster.FreezeAPIServer())
	t.Cleanup(func() { must.Succeed(t, cluster.ThawAPIServer()) })
	time.Sleep(3 * time.Second) // until every goroutine of the reporter is blocked
	code, took := child.End(t, waitLimit, syscall.SIGTERM)
	t.Logf("two hanging plugins, full stdout and stderr, a hanging API server: ended after %s", took.Round(time.Millisecond))
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
	must.Succeed(t, err)
	cmd := exec.Command(binary, "--config", r.file, "--output", "-")
	cmd.Stdout, cmd.Stderr = write, write
	child := program.Start(t, cmd)
	must.Succeed(t, errors.Join(read.Close(), write.Close()))
	probes(t, one, 1)
	must.Succeed(t, child.Process.Signal(syscall.SIGHUP))
	probes(t, one, 2)
	if code, _ := child.End(t, waitLimit, syscall.SIGTERM); code != 0 {
		t.Errorf("ended with %d", code)
	}
}
