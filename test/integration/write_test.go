//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestReporterOwnsItsEntryAndNothingElse(t *testing.T) {
	r := newReporter(t)
	r.podUID = "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10"
	own, manager := contract.ConditionType(r.node), contract.ConditionManager(r.node)
	others := map[string]string{"NodeControllerDegraded": "not ours", contract.ConditionType("elsewhere"): "[]"}
	apply := func(manager, conditionType, message string) {
		must.Succeed(t, apiservers.Apply(t.Context(), administrator(), manager, controlplane.OperatorGVR(resource), "",
			apiservers.Kube.Status(map[string]any{"type": conditionType, "status": "False", "reason": "Test",
				"message": message, "lastTransitionTime": "2026-05-08T12:34:56Z"}), "status"))
	}
	for conditionType, message := range others {
		apply("manager-of-"+conditionType, conditionType, message)
	}
	apply("earlier-manager", own, "to be replaced")
	one := r.plugin("1")
	r.configure(toKube, "1:Write")
	r.start()
	first := r.freshCondition("1=healthy")
	if first[0].KEKID != one.KeyID() || first[0].Interval != time.Second || first[0].Reporter != r.podUID ||
		"unix://"+first[0].Socket != one.Endpoint() {
		t.Errorf("%+v", first[0])
	}
	before := operatorstatus.ReadConditions(operatorObject(t))[own]
	if before.Status != "True" || before.Reason != "AsExpected" {
		t.Errorf("%v", before)
	}
	r.freshCondition("1=healthy")
	object := operatorObject(t)
	conditions := operatorstatus.ReadConditions(object)
	if after := conditions[own]; before.Message == after.Message || before.LastTransitionTime != after.LastTransitionTime {
		t.Errorf("%v, then %v: only the message must change as time passes", before, after)
	}
	for conditionType, message := range others {
		if c := conditions[conditionType]; c.Message != message {
			t.Errorf("%s is now %v", conditionType, c)
		}
	}
	// pkg/reporter/publish searches for this text first. Without it, each answer would be decoded.
	_, answer, _ := strings.Cut(metadataOf(t), `"managedFields":[`)
	_, answer, _ = strings.Cut(answer, `{"manager":"`+manager+`",`)
	if want := `"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"` + own + `\"}":`; !strings.Contains(answer, want) {
		t.Errorf("%s is not in %s", want, answer)
	}
	for _, owned := range object.GetManagedFields() {
		if owned.Manager != manager {
			continue
		}
		if owned.Operation != metav1.ManagedFieldsOperationApply || owned.Subresource != "status" {
			t.Errorf("%s by %s of %q", owned.Manager, owned.Operation, owned.Subresource)
		}
		fields := owned.FieldsV1.GetRawString()
		for text, want := range map[string]int{`"k:{`: 1, `"f:conditions"`: 1, `"f:status":{"f:conditions"`: 1} {
			if strings.Count(fields, text) != want || !strings.Contains(fields, r.node) {
				t.Errorf("owns %s", fields)
			}
		}
	}
}

// metadataOf returns the resource's metadata as the API server answers it to a reporter's write.
func metadataOf(t *testing.T) string {
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig()).RESTClient()
	answer, err := client.Get().AbsPath("/apis", controlplane.OperatorGroup, "v1", resource, controlplane.ClusterObject).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(soon(t)).Raw()
	must.Succeed(t, err)
	return string(answer)
}
