//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// If admission refuses a companion, the operator reports it with the API server's message. It still creates the
// companions of other nodes and removes objects that are not needed.
func TestCompanionThatIsRefusedStopsNothingElse(t *testing.T) {
	denyReportersOn(t, fixture.NodeNames[0])
	awaitDenial(t, "no reporter here")
	op, began := fixture.NewOperator(t), time.Now()
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	left := objects.ConfigMapName(apiservers.Kube.Name, nil)
	fixture.ApplyObject(t, configMaps, fixture.Namespace, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": left, "labels": map[string]any{
			contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: apiservers.Kube.Name,
		}},
	})
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	op.Start(fixture.KubeAPIServer())
	refused := fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", "Refused")
	awaitWarning(t, "Refused", began, "no reporter here")
	if !strings.Contains(refused.Message, "no reporter here") {
		t.Errorf("without the API server's message: %s", refused.Message)
	}
	for _, pod := range fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)-1) {
		if pod.Spec.NodeName == fixture.NodeNames[0] {
			t.Errorf("pod %s is on the node of which it is refused", pod.Name)
		}
	}
	fixture.Eventually(t, "the ConfigMap that nothing needs is deleted", func() error {
		_, err := fixture.Client.Resource(configMaps).Namespace(fixture.Namespace).Get(t.Context(), left, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// denyReportersOn installs an admission policy that refuses the operator's pods on a node.
func denyReportersOn(t *testing.T, node string) {
	t.Helper()
	const name = "deny-reporters"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: rule(fixture.Namespace, "", "pods", admissionv1.Create),
		MatchConditions:  []admissionv1.MatchCondition{{Name: "matches", Expression: isReporter}},
		Validations:      []admissionv1.Validation{{Expression: fmt.Sprintf("object.spec.nodeName != '%s'", node), Message: "no reporter here"}},
	}}
	deny(t, policy)
}

// deny installs a validating admission policy that denies, until the test ends.
func deny(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	name, admission := policy.Name, fixture.Kube.AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	must.Succeed(t, err)
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := admission.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := admission.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// A cluster may deny pods without a controller. The pods of a DaemonSet have one.
func TestPolicyAgainstPodsWithoutAControllerDeniesNoDaemonSet(t *testing.T) {
	deny(t, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny-bare-pods"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: rule(fixture.Namespace, "", "pods", admissionv1.Create),
			MatchConditions:  []admissionv1.MatchCondition{{Name: "matches", Expression: isReporter}},
			Validations: []admissionv1.Validation{{Message: "no bare pods",
				Expression: "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.controller)"}},
		}})
	awaitDenial(t, "no bare pods")
	startAgents(t)
	fixture.AwaitPods(t, fixture.Namespace, agents, len(fixture.NodeNames))
}
