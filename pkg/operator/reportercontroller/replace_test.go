package reportercontroller

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// created returns the workloads of a plan that do not exist yet.
func created(s *Snapshot, plan *Plan) []*unstructured.Unstructured {
	return slices.DeleteFunc(workloads(plan),
		func(o *unstructured.Unstructured) bool { return s.find(o) != nil })
}

// replacing returns a target whose companions are replaced because their image has changed.
func replacing(t *testing.T, change ...func(*Snapshot)) *Snapshot {
	t.Helper()
	three := pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3"))
	first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, three, configSource(v1alpha1.ConfigSourceConfigMap)))
	s := fixture(t, v1alpha1.ModeCompanionPod, three, delivered(t, first), configSource(v1alpha1.ConfigSourceConfigMap))
	s.Config.Image = "reporter:2"
	for _, c := range change {
		c(s)
	}
	return s
}

// Reporters that never ran are not kept until the new ones of all nodes report.
func TestReportersThatNeverRanAreReplacedWhileTheDeliveryChanges(t *testing.T) {
	s := replacing(t, func(s *Snapshot) {
		setPhase(s, corev1.PodPending, testTime)
		s.State.Mode = v1alpha1.ModeDaemonSet
	})
	for range 12 {
		plan := planOf(t, s)
		if plan.State.Mode == v1alpha1.ModeCompanionPod {
			return
		}
		for _, o := range created(s, plan) {
			o := o.DeepCopy()
			_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
			o.SetCreationTimestamp(metav1.NewTime(testTime))
			s.Own = append(s.Own, o)
		}
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return slices.Contains(plan.Delete, o) })
		s.State = plan.State
	}
	t.Errorf("it never ends: %+v, %s", planOf(t, s).Status, names(s.own("Pod")))
}

// The ConfigMaps of agents and of sidecars have the same name in different namespaces.
func TestConfigMapOfAnotherDeliveryIsRemovedThoughOneOfItsNameIsMounted(t *testing.T) {
	configMap := func(namespace string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(companionConfigMapOf(1))
		o.SetNamespace(namespace)
		return o
	}
	mountsIt := mounting(companionConfigMapOf(1))
	on := pods(apiPod("a", "1"))
	first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, on, configSource(v1alpha1.ConfigSourceConfigMap)))
	left := configMap("ns")
	s := fixture(t, v1alpha1.ModeCompanionPod, on, delivered(t, first), configSource(v1alpha1.ConfigSourceConfigMap),
		func(s *Snapshot) { s.Own = append(s.Own, left) })
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("Companion: deletes %s", names(plan.Delete))
	}
	left = configMap("kms-health")
	s = fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "1", mountsIt, withReporter)),
		func(s *Snapshot) { s.Own = append(s.Own, left) })
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("Sidecar: deletes %s", names(plan.Delete))
	}
	s = fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "1", mountsIt)), func(s *Snapshot) {
		s.Own = append(s.Own, left)
		s.Live = set()
		s.State.Live = nil
	})
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("KMS is off: %+v, deletes %s", plan.Status, names(plan.Delete))
	}
}

// A replacement may take long, for example if the image does not exist. Mounted files need a new CA meanwhile.
func TestMountedFilesOfEarlierPluginsGetANewCA(t *testing.T) {
	two, mounts := pods(apiPod("a", "1"), apiPod("b", "2")), configSource(v1alpha1.ConfigSourceConfigMap)
	first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, two, mounts))
	s := fixture(t, v1alpha1.ModeCompanionPod, two, delivered(t, first), mounts)
	s.Config.Image, s.Live, s.CA = "reporter:2", set(2), []byte("after")
	plan := planOf(t, s)
	at := slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetName() == companionConfigMapOf(1) })
	if at < 0 {
		t.Fatalf("applies %s", names(plan.Apply))
	}
	data, _, _ := unstructured.NestedStringMap(plan.Apply[at].Object, "data")
	if after := base64.StdEncoding.EncodeToString(s.CA); !strings.Contains(data["kubeconfig"], after) ||
		!strings.Contains(data["config.yaml"], "kms-1.sock") {
		t.Errorf("the file that is still mounted is %v", data)
	}
}
