//go:build integration

package operator

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/nodes"
)

// A plugin, or a reporter, that never starts cannot say so. The pod does.
func TestContainersThatNeverStartAreTold(t *testing.T) {
	h := newHouse(t)
	plugin := func(pod *corev1.Pod) *nodes.Behaviour {
		if pod.Namespace == apiservers.Kube.Namespace && pod.Spec.NodeName == "master-0" {
			return &nodes.Behaviour{Container: "kms-plugin", Does: nodes.CannotPull, Message: "no such manifest"}
		}
		return nil
	}
	reporter := func(pod *corev1.Pod) *nodes.Behaviour {
		if pod.Labels[render.DeliveryLabel] != "" && pod.Spec.NodeName == "master-2" {
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
	h.configure(targets(apiservers.Kube.Target()))
	h.start("")
	said := func(words ...string) {
		t.Helper()
		awaitRollUp(t, apiservers.Kube, rollup.Degraded, rollup.True, rollup.PluginNotRunning)
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
	said("node master-0: container kms-plugin cannot start: ", "no such manifest", "oc describe -n openshift-kube-apiserver pod kube-apiserver-master-0")
	workers.PodBehaviour(func(pod *corev1.Pod) *nodes.Behaviour {
		if b := reporter(pod); b != nil {
			return b
		}
		return plugin(pod)
	})
	said("container kms-plugin cannot start", "node master-2: container kms-health cannot start: CrashLoopBackOff, exit code 2", "oc logs -n "+home)
	workers.PodBehaviour(reporter)
	awaitRollUp(t, apiservers.Kube, rollup.Degraded, rollup.True, rollup.ReporterNotRunning)
	workers.PodBehaviour(nil)
	awaitRollUp(t, apiservers.Kube, rollup.Degraded, rollup.False, rollup.AwaitingReports)
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}
