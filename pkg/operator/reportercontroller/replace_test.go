package reportercontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// created returns the workloads of a plan that do not exist yet.
func created(s *Snapshot, plan *Plan) []*unstructured.Unstructured {
	return slices.DeleteFunc(workloads(plan),
		func(o *unstructured.Unstructured) bool { return s.find(o) != nil })
}

// Reporters that never ran are not kept until the new ones of all nodes report.
func TestReportersThatNeverRanAreReplacedWhileTheDeliveryChanges(t *testing.T) {
	s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3")))
	setPhase(s, corev1.PodPending, 0)
	s.Config.Image, s.State.Mode = "reporter:2", v1alpha1.ModeDaemonSet
	for range 12 {
		plan := ComputePlan(s)
		if plan.State.Mode == v1alpha1.ModeCompanionPod {
			return
		}
		delivered(&Plan{Apply: created(s, plan), State: plan.State})(s)
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return slices.Contains(plan.Delete, o) })
	}
	t.Errorf("it never ends: %+v, %s", ComputePlan(s).Status, names(s.own("Pod")))
}

// The ConfigMaps of agents and of sidecars have the same name in different namespaces.
func TestConfigMapOfAnotherDeliveryIsRemovedThoughOneOfItsNameIsMounted(t *testing.T) {
	mountsIt, off := mounting(configMapOf(1)), func(s *Snapshot) { s.Sets[liveRevision] = *set() }
	inOwn, inTarget := object("v1", "ConfigMap", "kms-health", configMapOf(1)),
		object("v1", "ConfigMap", "ns", configMapOf(1))
	for name, c := range map[string]struct {
		s    *Snapshot
		left *unstructured.Unstructured
	}{
		"companions": {after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")),
			configSource(v1alpha1.ConfigSourceConfigMap)), inTarget},
		"sidecars":   {fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "1", mountsIt, withReporter))), inOwn},
		"KMS is off": {fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "1", mountsIt)), off), inOwn},
	} {
		c.s.Own = append(c.s.Own, c.left)
		if plan := ComputePlan(c.s); !slices.Contains(plan.Delete, c.left) {
			t.Errorf("%s: %+v, deletes %s", name, plan.Status, names(plan.Delete))
		}
	}
}
