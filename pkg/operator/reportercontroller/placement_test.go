package reportercontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

// A plugin is added in a folder that the pods do not mount yet, or its endpoint is mistyped:
// what reports on the other plugins stays as it is.
func TestEndpointThatNoPodMountsIsAProblemOfItsPluginAlone(t *testing.T) {
	asInjected := func(p *corev1.Pod) {
		withReporter(p)
		mounting(configMapOf(1))(p)
	}
	for name, c := range map[string]struct {
		mode v1alpha1.Mode
		pod  *corev1.Pod
		more func(*Snapshot)
	}{
		"companions":  {v1alpha1.ModeCompanionPod, apiPod("a", "1"), func(*Snapshot) {}},
		"a DaemonSet": {v1alpha1.ModeDaemonSet, apiPod("a", "1", onHost), func(*Snapshot) {}},
		"a sidecar of Deployment": {v1alpha1.ModeSidecar, apiPod("a", "1", asInjected),
			func(s *Snapshot) { inDeployment(s); s.Deployment = deployment(1) }},
	} {
		first := planOf(t, fixture(t, c.mode, pods(c.pod), c.more))
		s := fixture(t, c.mode, pods(c.pod), delivered(t, first), c.more)
		s.Live = set(1, 2)
		s.Live.Config.Plugins[1].Endpoint = "unix:///var/run/kmsplugins/kms-2.sock"
		plan := planOf(t, s)
		if plan.Status.Reason != contract.SocketVolumeMissing || !strings.Contains(plan.Status.Message,
			"/var/run/kmsplugins") || strings.Contains(plan.Status.Message, "kms-1") {
			t.Errorf("%s: %+v", name, plan.Status)
		}
		if len(plan.Delete) > 0 || names(workloads(plan)) != names(workloads(first)) {
			t.Errorf("%s: deletes %s, has %s", name, names(plan.Delete), names(workloads(plan)))
		}
		for _, w := range plan.Apply {
			if _, has := w.GetAnnotations()[contract.ConfigAnnotation]; has && keyIDs(t, w) != "1" {
				t.Errorf("%s: %s has plugins %s", name, w.GetName(), keyIDs(t, w))
			}
		}
		if hash := injectedHash(plan); hash != injectedHash(first) {
			t.Errorf("%s: another container, %s", name, hash)
		}
	}
}

func injectedHash(plan *Plan) (hash string) {
	if plan.Inject != nil {
		hash, _, _ = unstructured.NestedString(plan.Inject.Object, "spec", "template", "metadata", "annotations",
			contract.PodHashAnnotation)
	}
	return hash
}

// An abstract socket has no folder: the network that it is in decides.
func TestAbstractSocketsHaveAModeOrAFix(t *testing.T) {
	onHostsNetwork := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		server string
		mode   v1alpha1.Mode
		reason delivery.Reason
		part   string
	}{
		"on the nodes' network": {apiPod("a", "1", onHostsNetwork), "https://localhost:6443",
			v1alpha1.ModeDaemonSet, contract.AsExpected, ""},
		"on the nodes', where reporters are not": {apiPod("a", "1", onHostsNetwork), "https://api.example.com",
			v1alpha1.ModeDaemonSet, contract.SocketVolumeMissing, "connection.server"},
		"on the pod's network, which is another's": {apiPod("a", "1"), "https://localhost:6443", "",
			contract.SocketVolumeMissing, "use mode Sidecar"},
	} {
		s := fixture(t, v1alpha1.ModeAuto, pods(c.pod))
		s.Target.Connection.Server = c.server
		s.Live.Config.Plugins[0].Endpoint = "unix:///@kms"
		plan := planOf(t, s)
		if plan.State.Mode != c.mode || plan.Status.Reason != c.reason || !strings.Contains(plan.Status.Message, c.part) {
			t.Errorf("%s: mode %s, %+v", name, plan.State.Mode, plan.Status)
		}
	}
}
