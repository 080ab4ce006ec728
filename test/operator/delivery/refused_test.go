//go:build integration

package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// If admission refuses a companion, the operator reports it with the API server's message. It still creates the
// companions of other nodes and removes objects that are not needed.
func TestCompanionThatIsRefusedStopsNothingElse(t *testing.T) {
	denyReporters(t, fmt.Sprintf("object.spec.nodeName != '%s'", fixture.NodeNames[0]), "no reporter here")
	op, began := fixture.NewOperator(t), time.Now()
	left := objects.ConfigMapName(apiservers.Kube.Name, nil)
	fixture.ApplyObject(t, fixture.Kinds["ConfigMap"], fixture.Namespace, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": left, "labels": map[string]any{
			contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: apiservers.Kube.Name,
		}},
	})
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	op.Start(fixture.KubeAPIServer())
	refused := fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", "Refused")
	fixture.AwaitWarning(t, "Refused", began, "no reporter here")
	if !strings.Contains(refused.Message, "no reporter here") {
		t.Errorf("without the API server's message: %s", refused.Message)
	}
	for _, pod := range fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)-1) {
		if pod.Spec.NodeName == fixture.NodeNames[0] {
			t.Errorf("pod %s is on the node of which it is refused", pod.Name)
		}
	}
	fixture.AwaitEqual(t, "the ConfigMap that nothing needs is deleted", true, func() bool {
		_, err := fixture.Kube.CoreV1().ConfigMaps(fixture.Namespace).Get(t.Context(), left, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// denyReporters installs an admission policy that refuses the operator's pods unless an expression is true.
func denyReporters(t *testing.T, unless, message string) {
	t.Helper()
	deny(t, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny-reporters"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: rule(fixture.Namespace, "", "pods", admissionv1.Create),
			MatchConditions:  []admissionv1.MatchCondition{{Name: "matches", Expression: isReporter}},
			Validations:      []admissionv1.Validation{{Expression: unless, Message: message}},
		}})
	awaitDenial(t, message)
}

// deny installs a validating admission policy that denies, until the test ends.
func deny(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	admission := fixture.Kube.AdmissionregistrationV1()
	create(t, admission.ValidatingAdmissionPolicies(), policy)
	create(t, admission.ValidatingAdmissionPolicyBindings(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}})
}

// No DaemonSet is applied whose pods the manifests' own policy denies, and the problem names the folder.
func TestFolderThatThePolicyDoesNotAllowIsReportedBeforeARollout(t *testing.T) {
	const denial = "may not mount or create /opt/kms: ValidatingAdmissionPolicy kms-health-pods"
	fixture.Excuse(func(e *auditv1.Event) bool { return strings.Contains(e.ResponseStatus.Message, denial) })
	fixture.NewOperator(t).Start(fixture.Targets(apiservers.OAuth.Target("mode: DaemonSet",
		`plugins: [{endpoint: "unix:///opt/kms/kms-1.sock", role: Write}]`, "nodeSelector: {kubernetes.io/os: linux}")))
	message := fixture.AwaitRollUp(t, apiservers.OAuth, contract.HealthReporting, "False", contract.Forbidden).Message
	if !strings.Contains(message, denial) {
		t.Errorf("the message is %s", message)
	}
	if err := daemonSetExists(t, apiservers.OAuth); !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet: %v", err)
	}
}

// A cluster may deny pods without a controller. The pods of a DaemonSet have one.
func TestPolicyAgainstPodsWithoutAControllerDeniesNoDaemonSet(t *testing.T) {
	denyReporters(t, "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.controller)", "no bare pods")
	fixture.StartOperator(t, fixture.OnHost)
	fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, len(fixture.NodeNames))
}
