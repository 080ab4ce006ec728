//go:build integration

package delivery

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// failPod writes the status that a kubelet writes when it ends a pod: at a shutdown of the node, at an eviction, or if
// it does not admit the pod.
func failPod(ctx context.Context, pod *corev1.Pod) error {
	failed := pod.DeepCopy()
	failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "Terminated"
	failed.Status.Message = "Pod was terminated in response to imminent node shutdown."
	for i := range failed.Status.ContainerStatuses {
		failed.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: metav1.Now()}}
	}
	_, err := fixture.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
	return err
}

// failEachOn fails each companion on a node until stop is called, like a kubelet that does not admit it. stop returns
// how many it failed.
func failEachOn(t *testing.T, node string) (stop func() int) {
	failed := map[string]bool{}
	end := fixture.Repeat(t, 50*time.Millisecond, func(ctx context.Context) {
		list, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).List(ctx, metav1.ListOptions{LabelSelector: fixture.Companions})
		if err != nil {
			return
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == node && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil && failPod(ctx, &p) == nil {
				failed[string(p.UID)] = true
			}
		}
	})
	return func() int { end(); return len(failed) }
}

// If a kubelet shuts down, evicts or does not admit a pod, the pod stays in phase Failed while the API server's pod
// continues to run. The operator must replace such a companion.
func TestFailedPodsAreReplaced(t *testing.T) {
	fixture.StartOperator(t, fixture.InPod)
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	fixture.AwaitDelivered(t, apiservers.Kube)
	seen := fixture.RecordConditions(t, apiservers.Kube)

	const while, most = 5 * time.Second, 3
	stop := failEachOn(t, fixture.NodeNames[0])
	time.Sleep(while)
	if n := stop(); n > most {
		t.Errorf("%d companions were created in %s, at most %d may be", n, while, most)
	}
	fixture.Eventually(t, "it is reported", func() error {
		if found := seen.With("KMSHealthReporting False ReporterNotRunning"); len(found) == 0 {
			return fmt.Errorf("no ReporterNotRunning, but %v", seen.With("KMSHealthReporting"))
		}
		return nil
	})
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	fixture.AwaitDelivered(t, apiservers.Kube)
}
