//go:build integration

package rollup

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The only API server mounts the live Secret. Its container restarts just after the Secret got another write key, so
// its mount may still have the old Secret.
func TestContainerThatIsStartedAgainMayWriteWithTheFormerKey(t *testing.T) {
	op := fixture.NewOperator(t)
	node := fixture.NodeNames[0]
	t.Cleanup(func() { fixture.Workers.PodBehaviour(nil) })
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("aescbc", "1"))
	fixture.RunStatic(t, node, fixture.StaticPod("", false))
	op.Start(fixture.KubeAPIServer())
	fixture.AwaitDelivered(t, apiservers.Kube)
	fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, "1s", nil, nil, node)
	agreed := func(reason string) {
		t.Helper()
		fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, "Unknown", reason)
	}
	agreed(contract.NoWriteKey)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "aescbc"))
	agreed(contract.WriteKeyUnknown)
	// A new mirror pod is no restart: if a mirror pod is deleted, a kubelet creates it again for the same container.
	fixture.RemoveStatics(t)
	agreed(contract.ReportsMissing)
	fixture.RunStatic(t, node, fixture.StaticPod("", false))
	agreed(contract.WriteKeyUnknown)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	for _, status := range []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: ended},
		{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: ended,
			RestartCount: 1},
	} {
		fixture.Workers.PodBehaviour(func(_ *corev1.Pod, container string) *corev1.ContainerStatus {
			if container != apiservers.Kube.Name {
				return nil
			}
			return &status
		})
		// The roll-up may see the new container a moment before the delivery has evaluated it.
		known := time.Now()
		fixture.Never(t, 10*time.Second, func() error {
			c := fixture.Resource(t, apiservers.Kube).Conditions[contract.WriteKeyAgreed]
			if c.Reason == contract.WriteKeyUnknown {
				known = time.Now()
			}
			if c.Status == operatorstatus.True || time.Since(known) > 5*time.Second {
				return fmt.Errorf("restarts: %d: %+v", status.RestartCount, c)
			}
			return nil
		})
		agreed(contract.WriteKeyUnknown)
	}
	// Even if the key is no longer the write key, a container may still write with it.
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("aescbc", "1"))
	fixture.StaysEqual(t, 5*time.Second, contract.WriteKeyUnknown, func() string {
		return fixture.Resource(t, apiservers.Kube).Conditions[contract.WriteKeyAgreed].Reason
	})
}
