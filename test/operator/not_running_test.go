//go:build integration

package operator

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/nodes"
)

// A plugin or a reporter that never starts is found by the status of its pod.
func TestContainersThatNeverStartAreReported(t *testing.T) {
	op := newOperator(t)
	plugin := func(pod *corev1.Pod) *nodes.Behaviour {
		if pod.Namespace == apiservers.Kube.Namespace && pod.Spec.NodeName == "master-0" {
			return &nodes.Behaviour{Container: "kms-plugin", Does: nodes.CannotPull, Message: "no such manifest"}
		}
		return nil
	}
	reporter := func(pod *corev1.Pod) *nodes.Behaviour {
		if pod.Labels[manifests.DeliveryLabel] != "" && pod.Spec.NodeName == "master-2" {
			return &nodes.Behaviour{Does: nodes.CrashLoops, ExitCode: 2, Message: "no such file"}
		}
		return nil
	}
	t.Cleanup(func() { workers.PodBehaviour(nil); removeStatics(t) })
	workers.PodBehaviour(plugin)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range nodeNames {
		pod := staticPod("1", false)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "kms-plugin", Image: "kms-plugin:1", VolumeMounts: pod.Spec.Containers[0].VolumeMounts,
		})
		runStatic(t, node, pod)
	}
	op.configure(targets(apiservers.Kube.Target()))
	op.start("")
	expect := func(words ...string) {
		t.Helper()
		awaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginNotRunning)
		eventually(t, strings.Join(words, ", "), func() error {
			message := resource(t, apiservers.Kube).Conditions[rollup.Degraded].Message
			for _, word := range words {
				if !strings.Contains(message, word) {
					return errors.New(message)
				}
			}
			return nil
		})
	}
	expect("node master-0: container kms-plugin cannot start: ", "no such manifest", "oc describe -n openshift-kube-apiserver pod kube-apiserver-master-0")
	workers.PodBehaviour(func(pod *corev1.Pod) *nodes.Behaviour {
		if b := reporter(pod); b != nil {
			return b
		}
		return plugin(pod)
	})
	expect("container kms-plugin cannot start", "node master-2: container kms-health cannot start: CrashLoopBackOff, exit code 2", "oc logs -n "+operatorNamespace)
	workers.PodBehaviour(reporter)
	awaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.ReporterNotRunning)
	workers.PodBehaviour(nil)
	awaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.False, rollup.AwaitingReports)
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
