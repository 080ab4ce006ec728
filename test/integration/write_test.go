//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporterOwnsItsEntryAndNothingElse(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	applyCondition(t, resource, "some-operator", "NodeControllerDegraded", "not ours")
	applyCondition(t, resource, "kms-health-reporter-elsewhere", health.ConditionType("elsewhere"), "[]")
	applyCondition(t, resource, "earlier-manager", health.ConditionType(r.node), "to be replaced")
	one := r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	r.start()
	first := r.freshCondition(resource, "1=healthy")
	if first[0].KEKID != one.KeyID() || first[0].Interval != time.Second {
		t.Errorf("%+v", first[0])
	}
	before := condition(t, resource, health.ConditionType(r.node))
	if before["status"] != "True" || before["reason"] != "AsExpected" {
		t.Errorf("%v", before)
	}
	r.freshCondition(resource, "1=healthy")
	after := condition(t, resource, health.ConditionType(r.node))
	if before["message"] == after["message"] {
		t.Error("the message did not change, though time passed")
	}
	if before["lastTransitionTime"] != after["lastTransitionTime"] {
		t.Errorf("lastTransitionTime moved from %v to %v", before["lastTransitionTime"], after["lastTransitionTime"])
	}
	for conditionType, message := range map[string]string{"NodeControllerDegraded": "not ours", health.ConditionType("elsewhere"): "[]"} {
		if c := condition(t, resource, conditionType); c == nil || c["message"] != message {
			t.Errorf("%s is now %v", conditionType, c)
		}
	}
	for _, owned := range object(t, resource).GetManagedFields() {
		if owned.Manager != health.ConditionManager(r.node) {
			continue
		}
		if owned.Operation != metav1.ManagedFieldsOperationApply || owned.Subresource != "status" {
			t.Errorf("%s by %s of %q", owned.Manager, owned.Operation, owned.Subresource)
		}
		if fields := owned.FieldsV1.GetRawString(); strings.Count(fields, `"k:{`) != 1 || !strings.Contains(fields, r.node) || strings.Count(fields, `"f:conditions"`) != 1 || strings.Count(fields, `"f:status":{"f:conditions"`) != 1 {
			t.Errorf("owns %s", fields)
		}
	}
}

func TestBothFormsReachEachResourceIndependently(t *testing.T) {
	for _, resource := range []string{controlplane.KubeAPIServers, controlplane.OpenShiftAPIServers, controlplane.Authentications} {
		t.Run(resource, func(t *testing.T) {
			r := newReporter(t, resource)
			r.token()
			r.plugin("1")
			two := r.plugin("2")
			r.configure(resource, "Both", "1:Read", "2:Write")
			r.start()
			r.freshCondition(resource, "2=healthy", "1=healthy")
			eventually(t, "two typed reports", func() bool { return len(reports(t, resource, r.node)) == 2 })

			if err := two.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultRPCError, Args: []string{"Internal", "out of order"}}); err != nil {
				t.Fatal(err)
			}
			r.freshCondition(resource, "2=error", "1=healthy")
			eventually(t, "the typed report has the error, with the key that was known", func() bool {
				for _, got := range reports(t, resource, r.node) {
					if got.KeyID == "2" {
						return got.Status == "Error" && got.RemoteKeyID == two.KeyID() && got.Detail == "Status: Internal: out of order"
					}
				}
				return false
			})

			r.configure(resource, "Both", "1:Write")
			r.freshCondition(resource, "1=healthy")
			eventually(t, "the report of the dropped plugin is deleted", func() bool {
				got := reports(t, resource, r.node)
				return len(got) == 1 && got[0].KeyID == "1"
			})
		})
	}
}

func TestTypedReportOfAPluginThatWasNeverHealthyHasItsKeyID(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1", kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy})
	r.configure(resource, "HealthReports", "1:Write")
	began := time.Now()
	r.start()
	var got []health.Report
	eventually(t, "a typed report", func() bool { got = reports(t, resource, r.node); return len(got) == 1 })
	t.Logf("reported %s after the start, the interval is 1s", time.Since(began).Round(time.Millisecond))
	if got[0].Status != "Unhealthy" || got[0].Detail == "" || got[0].RemoteKeyID != one.KeyID() {
		t.Errorf("%+v", got[0])
	}
	if condition(t, resource, health.ConditionType(r.node)) != nil {
		t.Error("a condition was written, though only the typed form was asked for")
	}
}

func TestPluginWithoutAKeyIDHasAConditionAndNoTypedReport(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	for _, fault := range []string{kmsplugin.FaultCrash, kmsplugin.FaultEmptyKeyID, kmsplugin.FaultLongKeyID} {
		t.Run(fault, func(t *testing.T) {
			r := newReporter(t, resource)
			r.token()
			one := r.plugin("1", kmsplugin.Fault{Name: fault})
			r.plugin("2")
			r.configure(resource, "Both", "1:Write", "2:Read")
			r.start()
			eventually(t, "both are in the condition, and the one with a key id in the typed form", func() bool {
				got := reports(t, resource, r.node)
				return len(entries(t, resource, r.node)) == 2 && len(got) == 1 && got[0].KeyID == "2"
			})
			if err := one.ClearFault(fault); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a typed report of both", func() bool { return len(reports(t, resource, r.node)) == 2 })
		})
	}
}

func TestConditionArrivesWhereTheTypedFormHasNoField(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	if err := cluster.ApplyOperatorCRDs(soon(t), controlplane.Default); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := cluster.ApplyOperatorCRDs(soon(t), controlplane.TechPreviewNoUpgrade); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	r := newReporter(t, resource)
	r.token()
	r.plugin("1")
	r.configure(resource, "Both", "1:Write")
	r.start()
	r.freshCondition(resource, "1=healthy")
	r.writes("HealthReports", "no_field")
	r.writes("HealthReports", "no_field")
	r.freshCondition(resource, "1=healthy")
	if n := r.count(`result="no_field"`); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	restore()
	eventually(t, "the typed report comes with the field", func() bool { return len(reports(t, resource, r.node)) == 1 })
}

func TestMissingObjectIsAwaitedAndNeverCreated(t *testing.T) {
	const resource = controlplane.OpenShiftAPIServers
	r := newReporter(t, resource)
	r.token()
	r.plugin("1")
	before := object(t, resource)
	if err := operatorResource(t, resource).Delete(soon(t), controlplane.ClusterObject, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.configure(resource, "Both", "1:Write")
	r.start()
	r.writes("Condition", "no_object")
	r.writes("Condition", "no_object")
	if object(t, resource) != nil {
		t.Error("the reporter created the object")
	}
	again := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": before.GetAPIVersion(), "kind": before.GetKind(), "metadata": map[string]any{"name": before.GetName()}, "spec": before.Object["spec"],
	}}
	if _, err := operatorResource(t, resource).Create(soon(t), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.freshCondition(resource, "1=healthy")
	if n := r.count(`result="no_object"`); n != 2 { // one per form
		t.Errorf("logged %d times, want once per form", n)
	}
}

func TestMissingResourceIsAwaited(t *testing.T) {
	const resource = controlplane.Authentications
	r := newReporter(t, resource)
	r.token()
	r.plugin("1")
	crds := administrator(t).Resource(crdGVR)
	if err := crds.Delete(soon(t), resource+"."+controlplane.OperatorGroup, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := cluster.ApplyOperatorCRDs(soon(t), controlplane.TechPreviewNoUpgrade); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	eventually(t, "the resource is deleted", func() bool { return object(t, resource) == nil })
	r.configure(resource, "Condition", "1:Write")
	r.start()
	r.writes("Condition", "no_resource")
	restore()
	r.freshCondition(resource, "1=healthy")
}

func TestNothingIsWrittenForAnEmptyListOfPlugins(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	r.plugin("1")
	r.configure(resource, "Both")
	r.start()
	r.logged("Configuration in force", "plugins=0")
	r.configure(resource, "Condition", "1:Write") // what follows proves that it could have written
	r.freshCondition(resource, "1=healthy")
	r.configure(resource, "Both")
	r.logged("Configuration in force", "plugins=0")
	last := entries(t, resource, r.node)[0].LastChecked
	since := time.Now()
	eventually(t, "three intervals pass", func() bool { return time.Since(since) > 3*time.Second })
	if got := entries(t, resource, r.node)[0].LastChecked; got.Sub(last) > time.Second {
		t.Errorf("still written: %s, then %s", last, got)
	}
	if got := reports(t, resource, r.node); len(got) != 0 {
		t.Errorf("typed reports were written: %v", got)
	}
}
