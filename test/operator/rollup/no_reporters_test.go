//go:build integration

package rollup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func patchDeployment(t *testing.T, patch string) {
	t.Helper()
	if _, err := fixture.Kube.AppsV1().Deployments(apiservers.OpenShift.Namespace).Patch(t.Context(), "apiserver", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// notDelivered waits for a reason, in the condition and in the metric.
func notDelivered(t *testing.T, metric func(string) map[string]string, server apiservers.Server, reason string) {
	t.Helper()
	fixture.AwaitCondition(t, server.Resource, "False", reason)
	fixture.AwaitSample(t, metric, "kms_health_operator_delivered", "0", `target="`+server.Name+`"`, `reason="`+reason+`"`)
}

// A delivery is not done as long as nothing reports.
func TestDeliveryWithoutReportersIsNotConfigured(t *testing.T) {
	t.Run("a DaemonSet that selects no node", func(t *testing.T) {
		op := fixture.NewOperator(t)
		metric := op.ServeMetrics()
		fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
		fixture.RollStatic(t, "1", true)
		t.Cleanup(func() { fixture.RemoveStatics(t) })
		op.Configure(fixture.Targets(apiservers.Kube.Target("delivery: DaemonSet", "nodeSelector: {no-such: node}")))
		op.Start("")
		notDelivered(t, metric, apiservers.Kube, "NoReporters")
		op.Configure(fixture.Targets(apiservers.Kube.Target("delivery: DaemonSet")))
		fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "Configured")
		op.Configure("targets: []\n")
		op.AwaitNothingLeft()
	})
	t.Run("a Deployment that is paused or has no pods", func(t *testing.T) {
		op := fixture.NewOperator(t)
		metric := op.ServeMetrics()
		fixture.SetEncryption(t, apiservers.OpenShift, apiservers.Encryption("1", "identity"), "1")
		fixture.ApplyDeployment(t, "1")
		t.Cleanup(func() { fixture.RemoveDeployment(t) })
		fixture.AwaitPods(t, apiservers.OpenShift.Namespace, "apiserver=true", 3)
		patchDeployment(t, `{"spec":{"paused":true}}`)
		op.Configure(fixture.Targets(fixture.OpenShiftAPIServer()))
		op.Start("")
		notDelivered(t, metric, apiservers.OpenShift, "DeploymentPaused")
		patchDeployment(t, `{"spec":{"paused":false}}`)
		fixture.AwaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")
		patchDeployment(t, `{"spec":{"replicas":0}}`)
		notDelivered(t, metric, apiservers.OpenShift, "NoReporters")
		patchDeployment(t, `{"spec":{"replicas":3}}`)
		fixture.AwaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")
		op.Configure("targets: []\n")
		op.AwaitNothingLeft()
	})
	t.Run("reporters that run and never write", func(t *testing.T) {
		shifted := newShiftedCluster(t)
		op := fixture.NewOperator(t)
		op.Server, op.CA = shifted.URL, shifted.ca
		metric := op.ServeMetrics()
		fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
		fixture.RollStatic(t, "1", false)
		t.Cleanup(func() { fixture.RemoveStatics(t) })
		op.Configure(fixture.Targets(apiservers.Kube.Target()))
		op.Start("")
		fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
		fixture.AgePods(t, apiservers.Kube.Namespace)
		shifted.date.Store(int64(10 * time.Minute)) // as if they ran for that long
		op.Configure(fixture.Every("29s", apiservers.Kube.Target()))
		notDelivered(t, metric, apiservers.Kube, "ReportersNotWriting")
		for _, node := range fixture.NodeNames {
			fixture.ReportStatus(t, apiservers.Kube, node, "healthy")
		}
		fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
		op.Configure("targets: []\n")
		op.AwaitNothingLeft()
	})
}
