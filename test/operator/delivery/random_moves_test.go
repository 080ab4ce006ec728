//go:build integration

package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// reportInterval is the interval of the reports.
const reportInterval = 30 * time.Second

// anyTime returns a random duration from -most to most.
func (m *model) anyTime(most time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(2*most))) - most
}

// shift makes the API servers' clocks wrong: the clock of the one that answers, and the clocks that write times into
// objects. With a larger shift, tokens would not be accepted.
func (m *model) shift(p *faultyProxy) string {
	date, content := m.anyTime(6*time.Hour), m.anyTime(6*time.Hour)
	p.clocks.Date.Store(int64(date))
	p.clocks.Content.Store(int64(content))
	return fmt.Sprintf("the clock of the API server that answers is %s ahead, in objects %s", date, content)
}

const second = "kube-apiserver-second"

// surge runs a second pod of kube-apiserver on a node, with another encryption config. If there is a second pod
// already, it replaces the first.
func (m *model) surge(t *testing.T) string {
	t.Helper()
	node := m.node()
	if m.second[node] != "" {
		m.endSurge(t, node)
		return "the second pod of " + node + " is the only one"
	}
	revision, _ := m.configure(t)
	pod := m.pod(node, revision)
	pod.Name = second
	fixture.RunStatic(t, node, pod)
	m.second[node] = revision
	return fmt.Sprintf("%s has a second pod, revision %s, %v", node, revision, m.live)
}

func (m *model) endSurge(t *testing.T, node string) {
	t.Helper()
	m.revs[node] = m.second[node]
	m.run(t, node)
	must.Succeed(t, fixture.Workers.RemoveStaticPod(t.Context(), node, apiservers.Kube.Namespace, second))
	delete(m.second, node)
}

func (m *model) endSurges(t *testing.T) {
	t.Helper()
	for node := range m.second {
		m.endSurge(t, node)
	}
}

// setFlag removes kube-apiserver's flag for an encryption config on a node, or sets it again. The flag matters only if
// the operator's file has the plugins: without the flag, an encryption config in a Secret may be used all the same.
func (m *model) setFlag(t *testing.T, op *fixture.Operator) string {
	t.Helper()
	if m.file == nil {
		m.file = []string{"1"}
		op.Configure(m.config())
	}
	node := m.node()
	if m.unset[node] {
		delete(m.unset, node)
	} else {
		m.unset[node] = true
	}
	m.run(t, node)
	return fmt.Sprintf("kube-apiserver on %s has no flag for an encryption config: %t", node, m.unset[node])
}

// load restarts the API servers if their plugins are in the operator's file: the operator does not know which plugins
// they loaded before.
func (m *model) load(t *testing.T, want []string) {
	t.Helper()
	if m.file == nil && len(m.unset) == 0 {
		return
	}
	clear(m.unset)
	for _, node := range fixture.NodeNames {
		m.run(t, node)
	}
	fixture.Eventually(t, "the end of the sequence, with API servers that were restarted", func() error {
		return m.arrived(t, want)
	})
}

// restore does another action, and then restores etcd as it was before.
func (m *model) restore(t *testing.T, p *faultyProxy, move func() string) string {
	t.Helper()
	backup := fixture.Resource(t, apiservers.Kube)
	what := move()
	m.report(t)
	time.Sleep(2 * time.Second) // for a roll-up
	m.restoreAs(t, p, backup)
	m.restored = true
	return what + "; then etcd is restored as it was before"
}

// awaitConditions waits for the conditions at the end. A watch does not show that etcd was restored: the operator
// notices it at a write, or once all reports seem stale.
func (m *model) awaitConditions(t *testing.T, what string) {
	t.Helper()
	wait.Eventually(t, 2*contract.StaleIntervals*reportInterval+fixture.Timeout, what, func() error {
		m.report(t)
		return m.differs(t)
	})
}

// restoreOutage restores, at the end, a status that says that a plugin is unhealthy, if etcd was restored before.
func (m *model) restoreOutage(t *testing.T, p *faultyProxy) {
	t.Helper()
	backup := fixture.Resource(t, apiservers.Kube)
	c, had := backup.Conditions[contract.PluginsDegraded]
	if !had || !m.restored {
		return
	}
	c.Status, c.Reason = operatorstatus.True, contract.PluginUnhealthy
	backup.Conditions[c.Type] = c
	m.restoreAs(t, p, backup)
	m.awaitConditions(t, "the conditions of the end, after a restore")
}

// restoreAs simulates a restore of etcd: kube-apiserver's operator resource gets the earlier conditions and reports,
// and lower resource versions, and all watches end.
func (m *model) restoreAs(t *testing.T, p *faultyProxy, backup *operatorstatus.Status) {
	t.Helper()
	var conditions []any
	for _, kind := range rollup.Types {
		if c, had := backup.Conditions[kind]; had {
			conditions = append(conditions, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason,
				"message": c.Message, "lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339)})
		}
	}
	p.away.Store(true)
	defer p.away.Store(false)
	p.CloseClientConnections()
	if len(conditions) > 0 {
		must.Succeed(t, apiservers.Apply(t.Context(), fixture.Client, contract.OperatorName,
			controlplane.OperatorGVR(apiservers.Kube.Resource), "", apiservers.Kube.Status(conditions...), "status"))
	}
	for _, r := range backup.Reports {
		if r.Form == operatorstatus.FormCondition && r.Err == nil {
			fixture.Report(t, apiservers.Kube, r.Node, time.Now(), r.Entries...)
		}
	}
	p.versions.Add(-10_000)
}
