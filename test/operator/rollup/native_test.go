//go:build integration

package rollup

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// startReporters runs an API server's pod on each node, the operator, and a reporter for each companion. It also
// returns the companions' UIDs, by node.
func startReporters(t *testing.T, op *fixture.Operator, pod *corev1.Pod, revisions ...string) (
	reporters []*fixture.Reporter, companions map[string]string) {
	t.Helper()
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), revisions...)
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, pod.DeepCopy())
	}
	op.Start(fixture.KubeAPIServer())
	companions = fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)))
	reporters = fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, fixture.Steady.String(), nil, companions)
	return reporters, companions
}

// OpenShift's own reporter writes, too. While a plugin is unhealthy, its typed reports are rejected, become old and are
// removed. While only Decrypt fails, they still say healthy. Neither may change the operator's verdict.
func TestVerdictIsSteadyBesideOpenShiftsReporter(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters, _ := startReporters(t, op, fixture.NativeStaticPod("1"), "1")
	var native []*fixture.NativeReporter
	for _, r := range reporters {
		native = append(native, fixture.StartNativeReporter(t, apiservers.Kube, r.Node, r.Plugin))
	}
	fixture.StartNativePruning(t, apiservers.Kube)
	fixture.AwaitHealthy(t)
	for _, tt := range []struct {
		name     string
		fault    kmsplugin.Fault
		rejected bool // the typed reports are rejected
	}{
		{"unhealthy", kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}, true},
		{"Decrypt refused while Status is ok", kmsplugin.Fault{Name: kmsplugin.FaultRefuseDecrypt}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plugin := reporters[1].Plugin
			seen := fixture.RecordConditions(t, apiservers.Kube)
			expect := func(statuses ...string) {
				t.Helper()
				fixture.AwaitEqual(t, "statuses of KMSPluginsDegraded", statuses, seen.Degraded)
			}
			expect("False")
			must.Succeed(t, plugin.SetFault(tt.fault))
			if !tt.rejected { // a new key ID causes a round trip at once
				_, err := plugin.Rotate()
				must.Succeed(t, err)
			}
			expect("False", "True")
			await := func(what string, n *atomic.Int64, more int64) {
				t.Helper()
				from := n.Load()
				fixture.Eventually(t, fmt.Sprintf("%d more typed reports are %s", more, what), func() error {
					if now := n.Load(); now < from+more {
						return fmt.Errorf("%d of them", now-from)
					}
					return nil
				})
			}
			if tt.rejected { // longer than nativePrune
				await("rejected", &native[1].Rejected, 8)
			} else {
				await("accepted", &native[1].Accepted, 8)
			}
			must.Equal(t, "statuses while it lasts", seen.Degraded(), []string{"False", "True"})
			must.Succeed(t, plugin.ClearFaults())
			expect("False", "True", "False")
			await("accepted", &native[1].Accepted, 4)
			must.Equal(t, "statuses in the end", seen.Degraded(), []string{"False", "True", "False"})
		})
	}
	for _, n := range native {
		n.Stop()
	}
	fixture.RemoveNativeReports(t, apiservers.Kube)
}

// The API server's pods get OpenShift's own reporter, one node after another, and lose it again. Each new pod gets a
// new companion.
func TestUpgradeToPodsWithOpenShiftsReporterAndBackIsQuiet(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters, companions := startReporters(t, op, apiservers.StaticPod("1"), "1", "2", "3")
	fixture.AwaitHealthy(t)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	fixture.StartNativePruning(t, apiservers.Kube)
	replace := func(i int, pod *corev1.Pod) {
		t.Helper()
		r, before := reporters[i], companions[reporters[i].Node]
		fixture.RunStatic(t, r.Node, pod)
		fixture.Eventually(t, r.Node+" has a new companion", func() error {
			companions = fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)))
			if companions[r.Node] == before {
				return errors.New("it has the one of the pod before")
			}
			return nil
		})
		r.Kill(t) // a reporter ends with its pod
		reporters[i] = fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, fixture.Steady.String(), r.Plugin, companions, r.Node)[0]
		time.Sleep(fixture.Steady / 3) // for its first report, and a roll-up
	}
	native := make([]*fixture.NativeReporter, len(reporters))
	for i, r := range reporters {
		replace(i, fixture.NativeStaticPod("2"))
		native[i] = fixture.StartNativeReporter(t, apiservers.Kube, r.Node, r.Plugin)
	}
	for i := range reporters {
		native[i].Stop()
		replace(i, apiservers.StaticPod("3"))
	}
	fixture.AwaitHealthy(t)
	must.Equal(t, "statuses", seen.Degraded(), []string{"False"})
	fixture.RemoveNativeReports(t, apiservers.Kube)
}
