package reportercontroller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

func TestRecordHasWhatARemovalNeeds(t *testing.T) {
	got := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")))).State
	if got.Installation != "kms-health" || got.Namespace != "ns" || got.Resource != v1alpha1.ResourceKubeAPIServers ||
		got.PodSelector["app"] != "api" || got.Mode != v1alpha1.ModeCompanionPod {
		t.Errorf("%+v", got)
	}
	s := fixture(t, v1alpha1.ModeCompanionPod, func(s *Snapshot) { s.Deleting, s.State.Token, s.State.Namespace = true, true, "ns" })
	if plan := ComputePlan(s); plan.Status.Reason != contract.Removing || !strings.HasSuffix(plan.Status.Message, "Secret") {
		t.Errorf("the token's Secret is left: %+v", plan.Status)
	}
	for what, c := range map[string]struct {
		change func(*Snapshot)
		want   bool
	}{
		"a ConfigMap":      {ownInTarget("ConfigMap"), true},
		"a ServiceAccount": {ownInTarget("ServiceAccount"), true},
		"a token":          {func(s *Snapshot) { s.State.Token = true }, true},
		"what is unknown":  {noConfigMaps(contract.SourceUnreadable, "forbidden"), true},
		"a Role":           {ownInTarget("Role"), false},
	} {
		s := fixture(t, v1alpha1.ModeCompanionPod, c.change, func(s *Snapshot) { s.State.InTarget = true })
		if got := ComputePlan(s).State.InTarget; got != c.want {
			t.Errorf("%s is left in the target's namespace: recorded %t", what, got)
		}
	}
}

func TestBothReportersMayWriteWhileTheModeChanges(t *testing.T) {
	subjects := func(plan *Plan) (all []string) {
		for _, o := range plan.Apply {
			list, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, subject := range list {
				namespace, _ := subject.(map[string]any)["namespace"].(string)
				all = append(all, o.GetKind()+" of "+namespace)
			}
		}
		slices.Sort(all)
		return all
	}
	s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), reports(reportOf("a", "companion-a")))
	s.Target.Mode, s.Target.Deployment, s.Deployment = v1alpha1.ModeSidecar, "apiserver", deployment(1)
	if got := subjects(ComputePlan(s)); !slices.Equal(got, []string{"ClusterRoleBinding of kms-health", "ClusterRoleBinding of ns"}) {
		t.Errorf("while it changes: %q", got)
	}
	s.Own, s.State = nil, delivery.State{}
	if got := subjects(ComputePlan(s)); !slices.Equal(got, []string{"ClusterRoleBinding of ns"}) {
		t.Errorf("without a reporter of before: %q", got)
	}
}

func TestTerminatingPodKeepsItsCompanionUntilANewerPodIsOnItsNode(t *testing.T) {
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"alone":                             {[]*corev1.Pod{apiPod("a", "1", terminating)}, "1"},
		"with a newer one on another node":  {[]*corev1.Pod{apiPod("a", "1", terminating), apiPod("b", "2")}, "1 2"},
		"its own UID, as its list may show": {[]*corev1.Pod{apiPod("a", "1", terminating), apiPod("a", "1")}, "1"},
	} {
		var beside []string
		for _, o := range workloads(ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(c.pods...)))) {
			beside = append(beside, o.GetAnnotations()[contract.BesideAnnotation])
		}
		if slices.Sort(beside); strings.Join(beside, " ") != c.want {
			t.Errorf("%s: companions beside %q, want %q", name, beside, c.want)
		}
	}
}

func TestMetadataOfALivePodIsPatchedWhereItDiffers(t *testing.T) {
	pod := func(label, annotation string, owners ...string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod"}}
		o.SetLabels(map[string]string{"l": label})
		o.SetAnnotations(map[string]string{"a": annotation})
		for _, uid := range owners {
			o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{UID: types.UID(uid)}))
		}
		return o
	}
	for name, c := range map[string]struct {
		live    *unstructured.Unstructured
		differs bool
	}{
		"the same":           {pod("1", "1", "o"), false},
		"another label":      {pod("2", "1", "o"), true},
		"another annotation": {pod("1", "2", "o"), true},
		"another owner":      {pod("1", "1", "p"), true},
		"no owner":           {pod("1", "1"), true},
	} {
		if patch := ssa.MetadataPatch(pod("1", "1", "o"), c.live); (patch != nil) != c.differs {
			t.Errorf("%s: %v", name, patch)
		}
	}
	live := pod("2", "1", "o")
	live.SetUID("read")
	if patch := ssa.MetadataPatch(pod("1", "1", "o"), live); patch["uid"] != types.UID("read") {
		t.Errorf("another pod of the name would be patched: %v", patch)
	}
}

func TestVersionsAndPodsAtTheirBounds(t *testing.T) {
	if !ssa.AtLeast("5", "5") || !ssa.AtLeast("6", "5") || ssa.AtLeast("4", "5") {
		t.Error("an object shows a write from its version on")
	}
	for phase, alive := range map[corev1.PodPhase]bool{
		corev1.PodRunning: true, corev1.PodPending: true, corev1.PodSucceeded: false, corev1.PodFailed: false,
	} {
		pod := apiPod("a", "1", func(p *corev1.Pod) { p.Status.Phase = phase })
		if delivery.Alive(pod) != alive {
			t.Errorf("%s: alive %t", phase, !alive)
		}
		if pod.Spec.NodeName = ""; delivery.Alive(pod) {
			t.Errorf("%s: alive without a node", phase)
		}
	}
}
