//go:build integration

package operator

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

func patchDeployment(t *testing.T, patch string) {
	t.Helper()
	if _, err := kube.AppsV1().Deployments(apiservers.OpenShift.Namespace).Patch(t.Context(), "apiserver", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// notDelivered waits for a reason, in the condition and in the metric.
func notDelivered(t *testing.T, metric func(string) map[string]string, server apiservers.Server, reason string) {
	t.Helper()
	awaitCondition(t, server.Resource, "False", reason)
	awaitSample(t, metric, "kms_health_operator_delivered", "0", `target="`+server.Name+`"`, `reason="`+reason+`"`)
}

// A delivery is not done as long as nothing reports.
func TestDeliveryWithoutReportersIsNotConfigured(t *testing.T) {
	t.Run("a DaemonSet that selects no node", func(t *testing.T) {
		op := newOperator(t)
		metric := op.serveMetrics()
		setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
		rollStatic(t, "1", true)
		t.Cleanup(func() { removeStatics(t) })
		op.configure(targets(apiservers.Kube.Target("delivery: DaemonSet", "nodeSelector: {no-such: node}")))
		op.start("")
		notDelivered(t, metric, apiservers.Kube, "NoReporters")
		op.configure(targets(apiservers.Kube.Target("delivery: DaemonSet")))
		awaitCondition(t, apiservers.Kube.Resource, "True", "Configured")
		op.configure("targets: []\n")
		op.awaitNothingLeft()
	})
	t.Run("a Deployment that is paused or has no pods", func(t *testing.T) {
		op := newOperator(t)
		metric := op.serveMetrics()
		setEncryption(t, apiservers.OpenShift, apiservers.Encryption("1", "identity"), "1")
		apiDeployment(t, "1")
		t.Cleanup(func() { removeDeployment(t) })
		awaitPods(t, apiservers.OpenShift.Namespace, "apiserver=true", 3)
		patchDeployment(t, `{"spec":{"paused":true}}`)
		op.configure(targets(openShiftAPIServer()))
		op.start("")
		notDelivered(t, metric, apiservers.OpenShift, "DeploymentPaused")
		patchDeployment(t, `{"spec":{"paused":false}}`)
		awaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")
		patchDeployment(t, `{"spec":{"replicas":0}}`)
		notDelivered(t, metric, apiservers.OpenShift, "NoReporters")
		patchDeployment(t, `{"spec":{"replicas":3}}`)
		awaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")
		op.configure("targets: []\n")
		op.awaitNothingLeft()
	})
	t.Run("reporters that run and never write", func(t *testing.T) {
		shifted := newShiftedCluster(t)
		op := newOperator(t)
		op.server, op.ca = shifted.URL, shifted.ca
		metric := op.serveMetrics()
		setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
		rollStatic(t, "1", false)
		t.Cleanup(func() { removeStatics(t) })
		op.configure(targets(apiservers.Kube.Target()))
		op.start("")
		awaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
		agePods(t, apiservers.Kube.Namespace)
		shifted.date.Store(int64(10 * time.Minute)) // as if they ran for that long
		op.configure(every("29s", apiservers.Kube.Target()))
		notDelivered(t, metric, apiservers.Kube, "ReportersNotWriting")
		for _, node := range nodeNames {
			reportStatus(t, apiservers.Kube, node, "healthy")
		}
		awaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
		op.configure("targets: []\n")
		op.awaitNothingLeft()
	})
}
