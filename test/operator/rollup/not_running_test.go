//go:build integration

package rollup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A plugin or a reporter that never starts is found by the status of its pod.
func TestContainersThatNeverStartAreReported(t *testing.T) {
	op := fixture.NewOperator(t)
	plugin := func(pod *corev1.Pod, container string) *corev1.ContainerStatus {
		if container != "kms-plugin" || pod.Spec.NodeName != "master-0" {
			return nil
		}
		return &corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such manifest"},
		}}
	}
	reporter := func(pod *corev1.Pod, _ string) *corev1.ContainerStatus {
		if pod.Labels[contract.ModeLabel] == "" || pod.Spec.NodeName != "master-2" {
			return nil
		}
		ended := &corev1.ContainerStateTerminated{ExitCode: 2, Message: "no such file"}
		return &corev1.ContainerStatus{
			RestartCount:         1,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: ended},
		}
	}
	t.Cleanup(func() { fixture.Workers.PodBehaviour(nil); fixture.RemoveStatics(t) })
	fixture.Workers.PodBehaviour(plugin)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range fixture.NodeNames {
		pod := fixture.StaticPod("1", false)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "kms-plugin", Image: "kms-plugin:1", VolumeMounts: pod.Spec.Containers[0].VolumeMounts,
		})
		fixture.RunStatic(t, node, pod)
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	expectNotRunning(t, "node master-0: container kms-plugin cannot start: ", "no such manifest",
		"oc describe -n openshift-kube-apiserver pod kube-apiserver-master-0")
	fixture.Workers.PodBehaviour(func(pod *corev1.Pod, container string) *corev1.ContainerStatus {
		if b := reporter(pod, container); b != nil {
			return b
		}
		return plugin(pod, container)
	})
	expectNotRunning(t, "container kms-plugin cannot start")
	fixture.Eventually(t, "the reporter is reported", func() error { // which is no fault of a plugin
		c := fixture.Resource(t, apiservers.Kube).Conditions[contract.HealthReporting]
		if c.Reason != contract.ReporterNotRunning || !strings.Contains(c.Message,
			"node master-2: container kms-health cannot start: CrashLoopBackOff, exit code 2: no such file; see oc logs -n "+fixture.Namespace) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.Workers.PodBehaviour(nil)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.False, contract.Progressing)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// expectNotRunning waits until a message has all words.
func expectNotRunning(t *testing.T, words ...string) {
	t.Helper()
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginNotRunning)
	fixture.Eventually(t, strings.Join(words, ", "), func() error {
		message := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded].Message
		for _, word := range words {
			if !strings.Contains(message, word) {
				return errors.New(message)
			}
		}
		return nil
	})
}
