package reportercontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

// A plugin is added in a folder that no pod mounts yet, or its endpoint is mistyped. The other plugins' reporters must
// not change.
func TestEndpointThatNoPodMountsIsAProblemOfItsPluginAlone(t *testing.T) {
	asInjected := func(p *corev1.Pod) {
		withReporter(p)
		mounting(configMapOf(1))(p)
	}
	for name, c := range map[v1alpha1.Mode]*corev1.Pod{
		v1alpha1.ModeCompanionPod: apiPod("a", "1"),
		v1alpha1.ModeDaemonSet:    apiPod("a", "1", onHost),
		v1alpha1.ModeSidecar:      apiPod("a", "1", asInjected),
	} {
		s := fixture(t, name, pods(c))
		if name == v1alpha1.ModeSidecar {
			s.Target.Deployment, s.Deployment = "apiserver", deployment(1)
		}
		first := ComputePlan(s)
		delivered(first)(s)
		s.Sets[liveRevision] = *set(1, 2)
		s.Sets[liveRevision].Config.Plugins[1].Endpoint = "unix:///var/run/kmsplugins/kms-2.sock"
		plan := ComputePlan(s)
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

// An abstract socket has no folder. Its network namespace decides the mode.
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
		s.Sets[liveRevision].Config.Plugins[0].Endpoint = "unix:///@kms"
		plan := ComputePlan(s)
		if plan.State.Mode != c.mode || plan.Status.Reason != c.reason || !strings.Contains(plan.Status.Message, c.part) {
			t.Errorf("%s: mode %s, %+v", name, plan.State.Mode, plan.Status)
		}
		if c.reason == contract.AsExpected && keyIDs(t, agent(templateAnnotations(plan))) != "1" {
			t.Errorf("%s: the agents' file is not of the plugin: %v", name, templateAnnotations(plan))
		}
	}
}

// Two companions on one node would overwrite each other's condition.
func TestOnePodOfEachNodeHasACompanion(t *testing.T) {
	type change = func(*Snapshot)
	seen := func(first, second time.Duration) change {
		return func(s *Snapshot) { s.Seen = map[types.UID]time.Duration{"1": first, "2": second} }
	}
	deleting := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	newer := func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1, 0) }
	unstarted := func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }
	companion := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "2"))))
	for name, c := range map[string]struct {
		first, second *corev1.Pod
		change        change
		want          string
	}{
		"the one that was seen last":         {apiPod("a", "1", newer), apiPod("a", "2"), seen(2, 1), "2"},
		"the one that is not being deleted":  {apiPod("a", "1"), apiPod("a", "2", deleting), seen(2, 1), "1"},
		"the one that has started":           {apiPod("a", "1"), apiPod("a", "2", unstarted), seen(2, 1), "1"},
		"at a start, the newest":             {apiPod("a", "1", newer), apiPod("a", "2"), seen(1, 1), "1"},
		"at a start, the one that has one":   {apiPod("a", "1", newer), apiPod("a", "2"), delivered(companion), "2"},
		"seen later than the one that has":   {apiPod("a", "1"), apiPod("a", "2"), func(s *Snapshot) { delivered(companion)(s); seen(1, 2)(s) }, "1"},
		"the same UID, as a list may show":   {apiPod("a", "1", deleting), apiPod("a", "1"), func(*Snapshot) {}, "1"},
		"both are being deleted, the latter": {apiPod("a", "1", deleting), apiPod("a", "2", deleting), seen(1, 2), "1"},
	} {
		plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(c.first, c.second), c.change))
		if w := workloads(plan); len(w) != 1 || w[0].GetAnnotations()[contract.BesideAnnotation] != c.want ||
			plan.Served["a"] != c.want || len(plan.Delete) > 0 {
			t.Errorf("%s: %s made, served are %v, %s deleted, want %s", name, names(w), plan.Served, names(plan.Delete), c.want)
		}
	}
	agents := fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1"), apiPod("a", "2")), seen(2, 1))
	if got := ComputePlan(agents).Served["a"]; got != "2" {
		t.Errorf("the agent's report is about pod %q", got)
	}
	s := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"), apiPod("a", "2")), delivered(companion), seen(1, 2))
	old := s.own("Pod")[0]
	old.SetUID("old")
	delivered(ComputePlan(s))(s)
	reports(reportOf("a", "old"))(s)
	deletes(t, s, "before the next one reports", "", contract.Progressing)
	reports(reportOf("a", "companion-a"))(s)
	deletes(t, s, "after it has reported", "Pod/"+old.GetName(), contract.AsExpected)
}
