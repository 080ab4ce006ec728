//go:build integration

package delivery

import (
	"errors"
	"fmt"
	"strings"
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
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	awaitObjects(t, "nothing is delivered", idle(apiservers.Kube, "encryption-config encryption-config-1")...)
	fixture.Eventually(t, "the ClusterOperator has conditions", func() error {
		if c := fixture.ClusterOperator(t)["Degraded"]; c.Status == "" {
			return errors.New("not yet")
		}
		return nil
	})
	seen := fixture.RecordConditions(t, apiservers.Kube)
	undisturbed := func() error {
		found := seen.With("KMSHealthReporting", "SocketVolumeMissing")
		found = append(found, seen.With("KMSPluginsDegraded", " True ")...)
		found = append(found, seen.With("KMSPluginsDegraded", " Unknown ")...)
		if c := fixture.ClusterOperator(t)["Degraded"]; c.Status != "False" {
			found = append(found, fmt.Sprintf("ClusterOperator: %+v", c))
		}
		if len(found) > 0 {
			return fmt.Errorf("a first enablement led to:\n%s", strings.Join(found, "\n"))
		}
		return nil
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
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// plainPod returns the pod of kube-apiserver of a revision without KMS: it has no volume for sockets.
func plainPod(revision string) *corev1.Pod {
	pod := fixture.StaticPod(revision, false)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}
