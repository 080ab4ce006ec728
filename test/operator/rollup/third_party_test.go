//go:build integration

package rollup

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A third-party writer of healthReports does not affect the delivery for others: neither
// a report that is fresh, nor that it becomes old between two writes.
func TestThirdPartyReportsDoNotChangeTheDelivery(t *testing.T) {
	shifted := newShiftedCluster(t)
	op := fixture.NewOperator(t)
	op.Server, op.CA = shifted.URL, shifted.ca
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t); removeReports(t, apiservers.Kube) })
	op.Configure(fixture.Every("30s", apiservers.Kube.Target()))
	op.Start("")
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	was := fixture.PodUIDs(t, fixture.Companions)
	// It writes every three minutes.
	for i := range 4 {
		shifted.content.Store(int64(-time.Duration(i%2) * 3 * time.Minute))
		typedReports(t, apiservers.Kube, "kms-preflight", fixture.NodeNames[0], "Healthy", time.Now().Add(time.Duration(i)*time.Second))
		op.Configure(fixture.Every(fmt.Sprintf("3%ds", i+1), apiservers.Kube.Target()))
		fixture.Never(t, 1500*time.Millisecond, func() error {
			if now := fixture.PodUIDs(t, fixture.Companions); !maps.Equal(now, was) {
				return fmt.Errorf("companions are %v, were %v", now, was)
			}
			return nil
		})
	}
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}

// thirdParty is an API server's own reporter on a node, which writes typed reports.
type thirdParty struct {
	status atomic.Value
	stop   func()
}

// startThirdParty starts one that reports once a second.
func startThirdParty(t *testing.T, node string, plugin *kmsplugin.Plugin) *thirdParty {
	t.Helper()
	r := &thirdParty{}
	r.status.Store("Healthy")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			o := apiservers.Kube.Status()
			o["status"] = map[string]any{"encryptionStatus": map[string]any{"healthReports": []any{map[string]any{
				"nodeName": node, "keyID": "1", "status": r.status.Load(), "remoteKeyID": plugin.KeyID(), "lastCheckedTime": time.Now().UTC().Format(time.RFC3339),
			}}}}
			if err := apiservers.Apply(ctx, fixture.Client, "kms-monitor-"+node, controlplane.OperatorGVR(apiservers.Kube.Resource), "", o, "status"); err != nil && ctx.Err() == nil {
				t.Errorf("third-party report: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

// staticWithThirdParty is kube-apiserver's pod with its own reporter.
func staticWithThirdParty() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	pod := fixture.StaticPod("1", false)
	pod.Spec.InitContainers = []corev1.Container{{Name: "kms-health-reporter", Image: "third-party:1", RestartPolicy: &always}}
	return pod
}

// awaitCompanionsOn waits until companions run on these nodes and on no others, and returns
// their UIDs.
func awaitCompanionsOn(t *testing.T, nodes ...string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	fixture.Eventually(t, fmt.Sprintf("companions are on %v", nodes), func() error {
		clear(uids)
		var on []string
		for _, p := range fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(nodes)) {
			on, uids[p.Name] = append(on, p.Spec.NodeName), string(p.UID)
		}
		if slices.Sort(on); !slices.Equal(on, nodes) {
			return fmt.Errorf("on %v", on)
		}
		return nil
	})
	return uids
}

// expectNoAlarm fails the test for conditions that report anything but health.
func expectNoAlarm(t *testing.T, what string, seen *fixture.ConditionsSeen) {
	t.Helper()
	for _, alarm := range []string{rollup.Degraded + " True", rollup.Degraded + " Unknown", rollup.Observed + " False"} {
		for _, found := range seen.With(alarm) {
			t.Errorf("%s: %s", what, found)
		}
	}
}

// An upgrade adds a third-party reporter to the API server's pods, one node after another, and
// a downgrade removes it: every node has one reporter, and no condition reports anything but
// health.
func TestUpgradeToAThirdPartyReporterAndBack(t *testing.T) {
	dir, err := os.MkdirTemp("", "kms") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms.sock"), StateDir: filepath.Join(dir, "key")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, plugin)
	was := awaitCompanionsOn(t, fixture.NodeNames...)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	theirs := map[string]*thirdParty{}
	for i, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, staticWithThirdParty())
		reporters[i].Kill(t)
		theirs[node] = startThirdParty(t, node, plugin)
		for name, uid := range awaitCompanionsOn(t, fixture.NodeNames[i+1:]...) {
			if was[name] != uid {
				t.Errorf("%s upgraded: companion %s was replaced", node, name)
			}
		}
		if i < 2 {
			fixture.Eventually(t, "the condition counts the pods with a third-party reporter", func() error {
				status, _, message := fixture.Condition(t.Context(), apiservers.Kube.Resource)
				if status != "True" || !strings.Contains(message, fmt.Sprintf("third-party reporter: %d of 3", i+1)) {
					return fmt.Errorf("%s upgraded: %s: %s", node, status, message)
				}
				return nil
			})
		}
		time.Sleep(5 * time.Second) // our last report of the node is stale then
		fixture.AwaitHealthy(t)
	}
	fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "ThirdPartyReporter")
	expectNoAlarm(t, "upgrade", seen)

	theirs["master-1"].status.Store("Unhealthy")
	if c := fixture.AwaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginUnhealthy); !strings.Contains(c.Message, "node master-1") {
		t.Errorf("%+v", c)
	}
	theirs["master-1"].status.Store("Healthy")
	fixture.AwaitHealthy(t)

	seen = fixture.RecordConditions(t, apiservers.Kube)
	for i, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, fixture.StaticPod("1", false))
		theirs[node].stop()
		awaitCompanionsOn(t, fixture.NodeNames[:i+1]...)
		reporters[i] = fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, "1s", plugin, node)[0]
		fixture.AwaitHealthy(t)
	}
	fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
	expectNoAlarm(t, "downgrade", seen)
	if got := forms(fixture.Resource(t, apiservers.Kube)); len(got) != 6 {
		t.Errorf("reports: %v", got)
	}
	for _, r := range reporters {
		r.Kill(t)
	}
	removeReports(t, apiservers.Kube)
	fixture.RemoveTarget(t, op, reporters)
}
