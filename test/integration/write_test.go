//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

func TestReporterOwnsItsEntryAndNothingElse(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.podUID = "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10"
	r.token()
	applyCondition(t, resource, "some-operator", "NodeControllerDegraded", "not ours")
	applyCondition(t, resource, "kms-health-reporter-elsewhere", contract.ConditionType("elsewhere"), "[]")
	applyCondition(t, resource, "earlier-manager", contract.ConditionType(r.node), "to be replaced")
	one := r.plugin("1")
	r.configure(resource, "1:Write")
	r.start()
	first := r.freshCondition("1=healthy")
	if first[0].KEKID != one.KeyID() || first[0].Interval != time.Second || first[0].Reporter != r.podUID {
		t.Errorf("%+v", first[0])
	}
	before := condition(t, resource, contract.ConditionType(r.node))
	if before["status"] != "True" || before["reason"] != "AsExpected" {
		t.Errorf("%v", before)
	}
	r.freshCondition("1=healthy")
	after := condition(t, resource, contract.ConditionType(r.node))
	if before["message"] == after["message"] {
		t.Error("the message did not change, though time passed")
	}
	if before["lastTransitionTime"] != after["lastTransitionTime"] {
		t.Errorf("lastTransitionTime moved from %v to %v", before["lastTransitionTime"], after["lastTransitionTime"])
	}
	for conditionType, message := range map[string]string{"NodeControllerDegraded": "not ours", contract.ConditionType("elsewhere"): "[]"} {
		if c := condition(t, resource, conditionType); c == nil || c["message"] != message {
			t.Errorf("%s is now %v", conditionType, c)
		}
	}
	// pkg/reporter/publish searches for this text first. Without it, each answer would be decoded.
	_, answer, _ := strings.Cut(metadataOf(t, resource), `"managedFields":[`)
	_, answer, _ = strings.Cut(answer, `{"manager":"`+contract.ConditionManager(r.node)+`",`)
	if want := `"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"` + contract.ConditionType(r.node) + `\"}":`; !strings.Contains(answer, want) {
		t.Errorf("%s is not in %s", want, answer)
	}
	for _, owned := range object(t, resource).GetManagedFields() {
		if owned.Manager != contract.ConditionManager(r.node) {
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

// metadataOf returns the metadata of a resource as the API server answers it to a reporter's write.
func metadataOf(t *testing.T, resource string) string {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	answer, err := client.RESTClient().Get().AbsPath("/apis", controlplane.OperatorGroup, "v1", resource, controlplane.ClusterObject).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(soon(t)).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
