//go:build integration

package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A change of the mode ends when the new reporter of each node has reported. The UID of its pod identifies it, even if
// the node's clock is wrong. A report's age is the time since it last changed, so a wrong clock makes no report stale.
func TestSwitchEndsOnNodesWhoseClocksAreWrong(t *testing.T) {
	target := apiservers.Kube
	op := fixture.NewOperator(t)
	fixture.RollOut(t, fixture.OnHost, "1", "1", "identity")
	behind := []time.Duration{0, -5 * time.Minute, 5 * time.Minute}
	report := func(i int, by map[string]string) {
		t.Helper()
		node := fixture.NodeNames[i]
		fixture.ReportBy(t, target, node, by[node], contract.Healthy, time.Now().Add(-behind[i]))
	}
	op.Start(fixture.KubeAPIServer("mode: CompanionPod"))
	seen := fixture.RecordConditions(t, target)
	companions := fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3))
	fixture.AwaitDelivered(t, target)
	for i := range fixture.NodeNames {
		report(i, companions)
	}
	op.Configure(fixture.KubeAPIServer("mode: DaemonSet"))
	agents := fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, 3))
	fixture.AwaitRollUp(t, target, contract.HealthReporting, "Unknown", contract.Progressing)
	report(0, agents)
	report(1, agents)
	report(2, companions) // the old reporter still reports
	// Until the last node's new reporter writes.
	fixture.StaysEqual(t, 3*time.Second, 3, func() int { return len(fixture.PodUIDs(t, fixture.Companions)) })
	report(2, agents)
	fixture.AwaitDelivered(t, target)
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 0)
	must.Succeed(t, seen.None("KMSPluginsDegraded True", "KMSPluginsDegraded Unknown"))
}
