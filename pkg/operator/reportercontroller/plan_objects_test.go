package reportercontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

func TestRecordHasWhatARemovalNeeds(t *testing.T) {
	got := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")))).State
	if got.Installation != "kms-health" || got.Namespace != "ns" || got.Resource != v1alpha1.ResourceKubeAPIServers ||
		got.PodSelector["app"] != "api" || got.Mode != v1alpha1.ModeCompanionPod {
		t.Errorf("%+v", got)
	}
	for what, c := range map[string]struct {
		change func(*Snapshot)
		want   bool
	}{
		"a ConfigMap":      {ownInTarget("ConfigMap"), true},
		"a ServiceAccount": {ownInTarget("ServiceAccount"), true},
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
	s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), reports(reportOf("a", "companion-a")))
	s.Target.Mode, s.Target.Deployment, s.Deployment = v1alpha1.ModeSidecar, "apiserver", deployment(1)
	has := func(when string, want ...string) {
		t.Helper()
		var got []string
		binding := ofKind(ComputePlan(s).Apply, "ClusterRoleBinding")[0]
		for _, subject := range informers.As[rbacv1.ClusterRoleBinding](binding).Subjects {
			got = append(got, subject.Namespace)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: those of namespaces %q, want %q", when, got, want)
		}
	}
	has("while it changes", "kms-health", "ns")
	s.Own, s.State = nil, delivery.State{}
	has("without a reporter of before", "ns")
}

func TestMetadataOfALivePodIsPatchedWhereItDiffers(t *testing.T) {
	pod := func(label, annotation, owner string) *unstructured.Unstructured {
		o := object("v1", "Pod", "ns", "o")
		o.SetUID("read")
		o.SetLabels(map[string]string{"l": label})
		o.SetAnnotations(map[string]string{"a": annotation})
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: types.UID(owner)}})
		return o
	}
	noOwner := pod("1", "1", "")
	noOwner.SetOwnerReferences(nil)
	for name, c := range map[string]struct {
		live    *unstructured.Unstructured
		differs bool
	}{
		"the same":           {pod("1", "1", "o"), false},
		"another label":      {pod("2", "1", "o"), true},
		"another annotation": {pod("1", "2", "o"), true},
		"another owner":      {pod("1", "1", "p"), true},
		"no owner":           {noOwner, true},
	} {
		patch := ssa.MetadataPatch(pod("1", "1", "o"), c.live)
		if (patch != nil) != c.differs || c.differs && patch["uid"] != types.UID("read") { // of this pod alone
			t.Errorf("%s: %v", name, patch)
		}
	}
}

func TestVersionsAndPodsAtTheirBounds(t *testing.T) {
	if !ssa.AtLeast("5", "5") || !ssa.AtLeast("6", "5") || ssa.AtLeast("4", "5") {
		t.Error("an object shows a write from its version on")
	}
	for phase, alive := range map[corev1.PodPhase]bool{
		corev1.PodRunning: true, corev1.PodPending: true, corev1.PodSucceeded: false, corev1.PodFailed: false,
	} {
		onNode, onNone := apiPod("a", "1"), apiPod("", "1")
		onNode.Status.Phase, onNone.Status.Phase = phase, phase
		if delivery.Alive(onNode) != alive || delivery.Alive(onNone) {
			t.Errorf("%s: alive %t, without a node %t", phase, !alive, delivery.Alive(onNone))
		}
	}
}
