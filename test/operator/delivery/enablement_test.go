//go:build integration

package delivery

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// When KMS is turned on for the first time, the old revision has no encryption config, and its pods have no plugin.
func TestFirstEnablementDegradesNothing(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	fixture.RemoveEncryption(t, apiservers.Kube)
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, plainPod("1"))
	}
	op.Start(fixture.KubeAPIServer())
	awaitObjects(t, "nothing is delivered", idle(apiservers.Kube, "encryption-config encryption-config-1")...)
	degraded := func() string { return fixture.ClusterOperator(t)["Degraded"].Status }
	fixture.AwaitEqual(t, "the ClusterOperator has conditions", "False", degraded)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	undisturbed := func() error {
		if degraded() != "False" {
			return fmt.Errorf("ClusterOperator: %+v", fixture.ClusterOperator(t))
		}
		return seen.None("SocketVolumeMissing", "KMSPluginsDegraded True", "KMSPluginsDegraded Unknown")
	}

	// First the live encryption config changes, then one pod after another.
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "2")
	fixture.Never(t, 2*time.Second, undisturbed) // twice the inertia
	for i, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, fixture.StaticPod("2", false))
		pods := fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, i+1)
		for _, p := range pods {
			fixture.ReportStatus(t, apiservers.Kube, p.Spec.NodeName, contract.Healthy)
		}
		fixture.Never(t, 2*time.Second, undisturbed)
	}
	fixture.AwaitDelivered(t, apiservers.Kube)
}

// plainPod returns the pod of kube-apiserver of a revision without KMS: it has no volume for sockets.
func plainPod(revision string) *corev1.Pod {
	pod := fixture.StaticPod(revision, false)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}
