package delivery

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// created are the pods of a plan that do not exist yet.
func created(s *Snapshot, plan *Plan) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(plan.Workloads), func(o *unstructured.Unstructured) bool { return s.find(o) != nil })
}

// replacing is a target whose companions are replaced, since their image has changed.
func replacing(t *testing.T, change ...func(*Snapshot)) *Snapshot {
	t.Helper()
	three := pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3"))
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, three, encryptsConfigMaps(false)))
	s := fixture(t, v1alpha1.DeliveryCompanion, three, delivered(t, first), encryptsConfigMaps(false))
	s.Config.Image = "reporter:2"
	for _, c := range change {
		c(s)
	}
	return s
}

// A pod of which no kubelet reports a status is on a node that is down.
func TestNodeThatIsDownDoesNotStopTheReplacementOnOthers(t *testing.T) {
	s := replacing(t)
	first := created(s, planOf(t, s))
	if len(first) != 1 || nodeOf(first[0]) != "a" {
		t.Fatalf("creates %s", names(first))
	}
	pod := first[0].DeepCopy()
	pod.SetCreationTimestamp(metav1.NewTime(s.Now))
	_ = unstructured.SetNestedField(pod.Object, "Pending", "status", "phase")
	s.Own = append(s.Own, pod)
	plan := planOf(t, s)
	if len(created(s, plan)) > 0 || plan.Requeue.IsZero() {
		t.Fatalf("creates %s at once, requeue at %s", names(created(s, plan)), plan.Requeue)
	}
	s.Now = s.Now.Add(5 * time.Minute)
	if next := created(s, planOf(t, s)); len(next) != 1 || nodeOf(next[0]) != "b" {
		t.Fatalf("creates %s, must be one on node b", names(next))
	}
	// Its kubelet answers: it is one that is being replaced.
	_ = unstructured.SetNestedField(pod.Object, s.Now.Format(time.RFC3339), "status", "startTime")
	if next := created(s, planOf(t, s)); len(next) > 0 {
		t.Fatalf("creates %s", names(next))
	}
}

// Nothing is gained by keeping reporters that never ran until the new ones of all nodes
// report.
func TestReportersThatNeverRanAreReplacedWhileTheDeliveryChanges(t *testing.T) {
	s := replacing(t, func(s *Snapshot) {
		setPhase(s, corev1.PodPending, s.Now)
		s.State.Delivery = v1alpha1.DeliveryDaemonSet
	})
	for range 12 {
		plan := planOf(t, s)
		if plan.Phase == Active {
			return
		}
		s.Now = s.Now.Add(time.Minute)
		for _, o := range created(s, plan) {
			o := o.DeepCopy()
			_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
			o.SetCreationTimestamp(metav1.NewTime(s.Now))
			s.Own = append(s.Own, o)
		}
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return slices.Contains(plan.Delete, o) })
		s.State = plan.State
	}
	t.Errorf("it never ends: %+v, %s", planOf(t, s).Status, names(s.own("Pod")))
}

// Those of agents and of pods of other owners have one name in both namespaces.
func TestConfigMapOfAnotherDeliveryIsRemovedThoughOneOfItsNameIsMounted(t *testing.T) {
	configMap := func(namespace string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(companionConfigMapOf(1))
		o.SetNamespace(namespace)
		return o
	}
	mountsIt := func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: companionConfigMapOf(1)}},
		}})
	}
	on := pods(apiPod("a", "1"))
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, on, encryptsConfigMaps(false)))
	left := configMap("ns")
	s := fixture(t, v1alpha1.DeliveryCompanion, on, delivered(t, first), encryptsConfigMaps(false), func(s *Snapshot) { s.Own = append(s.Own, left) })
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("Companion: deletes %s", names(plan.Delete))
	}
	left = configMap("kms-health")
	s = fixture(t, v1alpha1.DeliveryExternal, pods(apiPod("a", "1", mountsIt, withReporter)), func(s *Snapshot) { s.Own = append(s.Own, left) })
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("External: deletes %s", names(plan.Delete))
	}
	s = fixture(t, v1alpha1.DeliveryExternal, pods(apiPod("a", "1", mountsIt)), func(s *Snapshot) {
		s.Own = append(s.Own, left)
		s.Encryption.Live = set()
		s.State.Live = nil
	})
	if plan := planOf(t, s); !slices.Contains(plan.Delete, left) {
		t.Errorf("KMS is off: %s, deletes %s", plan.Phase, names(plan.Delete))
	}
}

// A replacement may take long, for example of an image that does not exist.
func TestReportersToBeReplacedGetANewCA(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		two := pods(apiPod("a", "1"), apiPod("b", "2"))
		before := func(s *Snapshot) { s.CA = []byte("before") }
		first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, two, before, encryptsConfigMaps(encrypted)))
		s := fixture(t, v1alpha1.DeliveryCompanion, two, delivered(t, first), before, encryptsConfigMaps(encrypted))
		s.Config.Image, s.Encryption.Live = "reporter:2", set(2)
		if plan := planOf(t, s); len(plan.RenewCA) > 0 {
			t.Errorf("encrypted %v: renews the CA of %s", encrypted, names(plan.RenewCA))
		}
		s.CA = []byte("after")
		plan := planOf(t, s)
		if encrypted {
			if is := func(kind string) bool {
				return slices.ContainsFunc(plan.RenewCA, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
			}; len(plan.RenewCA) < 2 || !is("Pod") {
				t.Errorf("renews the CA of %s", names(plan.RenewCA))
			}
			continue
		}
		at := slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetName() == companionConfigMapOf(1) })
		if at < 0 {
			t.Fatalf("applies %s", names(plan.Apply))
		}
		data, _, _ := unstructured.NestedStringMap(plan.Apply[at].Object, "data")
		if after := base64.StdEncoding.EncodeToString(s.CA); !strings.Contains(data["kubeconfig"], after) || !strings.Contains(data["config.yaml"], "kms-1.sock") {
			t.Errorf("the file that is still mounted is %v", data)
		}
	}
}
