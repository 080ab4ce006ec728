//go:build integration

package rollup

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// One of three API servers mounts the plugin's socket, and not its folder, as KubeOne makes it: it keeps the socket of
// the process that listened first. Its agent mounts the folder, and finds the plugin of now.
func TestAgentsReportIsNotAboutAnAPIServerThatDoesNotMountTheFolder(t *testing.T) {
	op := fixture.NewOperator(t)
	config := fixture.KubeAPIServer("mode: DaemonSet",
		`plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}]`,
		"nodeSelector: {kubernetes.io/os: linux}")
	fixture.RollStatic(t, "", true)
	op.Start(config)
	fixture.AwaitDelivered(t, apiservers.Kube)
	agents := fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, len(fixture.NodeNames))
	fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, "1s", nil, fixture.UIDsByNode(agents))
	fixture.AwaitHealthy(t)
	pod := fixture.StaticPod("", true)
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: "/var/run/kmsplugin/kms-1.sock", Type: new(corev1.HostPathSocket)}}
	pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/var/run/kmsplugin/kms-1.sock"
	fixture.RunStatic(t, fixture.NodeNames[2], pod)
	c := fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, operatorstatus.False, contract.SocketVolumeMissing)
	if !strings.Contains(c.Message, "mounts no volume at /var/run/kmsplugin or above it") {
		t.Errorf("%+v", c)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, operatorstatus.Unknown, contract.ReportsMissing)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.False, contract.Progressing)
	fixture.RunStatic(t, fixture.NodeNames[2], fixture.StaticPod("", true))
	fixture.AwaitHealthy(t)
}
