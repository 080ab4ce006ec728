//go:build integration

package clocks

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

const (
	interval = 5 * time.Second
	// few is the time in which a fault must be reported, also on a busy machine.
	few = 4 * interval
	// quiet is a time in which nothing may change while everything is healthy.
	quiet = time.Minute
)

// No clock of a node or of an API server decides anything: verdicts and their times are the same as with right clocks.
// The first node's clock is right.
func TestWrongClocksOfNodesAndTheirAPIServers(t *testing.T) {
	if len(ahead) == 0 {
		t.Skip("it takes a quarter of an hour, and programs built for it: make test-clocks")
	}
	op := fixture.NewOperator(t)
	all := startCluster(t, op)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	began := time.Now()
	fixture.AwaitAgreed(t, fixture.Plugin.KeyID())
	t.Logf("the write key is agreed on %s after all nodes were healthy", since(began))
	agreed := fixture.RecordConditions(t, apiservers.Kube)
	time.Sleep(quiet)
	must.Succeed(t, agreed.None("KMSWriteKeyAgreed Unknown", "KMSWriteKeyAgreed False"))
	expectRotation(t, all)
	must.Succeed(t, seen.None("KMSPluginsDegraded True", "KMSPluginsDegraded Unknown"))
	for _, n := range all {
		expectSealed(t, n)
	}
	for _, n := range all {
		expectSilent(t, n)
	}
	op.Kill(syscall.SIGKILL) // it would wait for the companions on nodes whose kubelets end before it
}

// startCluster starts nodes and the operator, and waits until everything is healthy.
func startCluster(t *testing.T, op *fixture.Operator) []*node {
	binary, err := program.Build(filepath.Dir(fixture.Binary), "cmd/kms-health-reporter")
	must.Succeed(t, err)
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	all := []*node{{
		name: fixture.NodeNames[0], plugin: fixture.Plugin, api: fixture.Cluster.RESTConfig(), dir: program.SocketDir(t),
	}}
	for i, by := range ahead {
		all = append(all, startNode(t, i+1, by))
	}
	op.Start(fixture.KubeAPIServer())
	fixture.AwaitDelivered(t, apiservers.Kube)
	for _, n := range all {
		n.startReporter(t, binary)
	}
	fixture.AwaitHealthy(t)
	return all
}

func since(at time.Time) time.Duration { return time.Since(at).Round(100 * time.Millisecond) }

func expectRotation(t *testing.T, all []*node) {
	began := time.Now()
	for _, n := range all {
		if _, err := n.plugin.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	fixture.AwaitAgreed(t, fixture.Plugin.KeyID())
	took := since(began)
	t.Logf("a new KEK is agreed on %s after its rotation", took)
	if took < rollup.SettlePeriod {
		t.Errorf("it is agreed on after %s, before all API servers write with it", took)
	}
}

// expectSealed checks that a sealed plugin is reported with its node in time, and that the end is, too.
func expectSealed(t *testing.T, n *node) {
	for _, step := range []struct{ command, status, reason, names string }{
		{"unhealthy vault is sealed", operatorstatus.True, contract.PluginUnhealthy, n.name},
		{"heal", operatorstatus.False, contract.AsExpected, ""},
	} {
		words := strings.Fields(step.command)
		must.Succeed(t, n.plugin.Do(words[0], words[1:]...))
		began := time.Now()
		c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, step.status, step.reason)
		took := since(began)
		t.Logf("%s: %s, reported after %s", n, step.command, took)
		if took > few || !strings.Contains(c.Message, step.names) {
			t.Errorf("%s: %q after %s, want %q within %s", n, c.Message, took, step.names, few)
		}
	}
}

// expectSilent checks that a silent reporter is stale after StaleIntervals, whatever its clock.
func expectSilent(t *testing.T, n *node) {
	must.Succeed(t, n.reporter.Signal(syscall.SIGSTOP))
	began := time.Now()
	c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.Unknown, contract.ReporterStale)
	took := since(began)
	if !strings.Contains(c.Message, n.name) {
		t.Errorf("%s is not named: %q", n, c.Message)
	}
	must.Succeed(t, n.reporter.Signal(syscall.SIGCONT))
	began = time.Now()
	fixture.AwaitHealthy(t)
	t.Logf("%s: silent, stale after %s; reports again, healthy after %s", n, took, since(began))
	// The last report may be up to an interval older than began.
	if stale := contract.StaleIntervals * interval; took < stale-interval-time.Second || took > stale+2*interval {
		t.Errorf("%s is stale after %s, want about %s", n, took, stale)
	}
}
