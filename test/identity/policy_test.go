//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// wideActions need rights that no reporter has. The policy must refuse them even if a role has these rights by
// accident.
func (s operatorResource) wideActions(t *testing.T, outcome string) []action {
	t.Helper()
	manager := contract.ConditionManager("node-a")
	merge := func(path string, change fields) request { return managedBy(manager, s.merge(t, path, change)) }
	actions := []action{
		{"spec.managementState", merge(s.path(), fields{"spec": fields{"managementState": "Force"}}), all(outcome)},
		{"spec.managementState removed", merge(s.path(), fields{"spec": fields{"managementState": nil}}), all(outcome)},
		{"a label added", merge(s.path(), fields{"metadata": fields{"labels": fields{"new": "x"}}}), all(outcome)},
		{"all labels removed", merge(s.path(), fields{"metadata": fields{"labels": nil}}), all(outcome)},
		{"an annotation", merge(s.path(), fields{"metadata": fields{"annotations": fields{"new": "x"}}}), all(outcome)},
		{"status.version", merge(s.status(), fields{"status": fields{"version": "forged"}}), all(outcome)},
		{"an operator's condition removed", managedBy(manager, s.change(t, "remove", "/status/conditions/0", nil)), all(outcome)},
	}
	if s.typed() {
		actions = append(actions, action{"preflight Succeeded", merge(s.status(), fields{"status": s.encryption(fields{"preflight": preflight("Succeeded")})}), all(outcome)})
	}
	return actions
}

func TestPolicyHoldsWithoutRBAC(t *testing.T) {
	for _, s := range operatorResources[:3] { // each resource, since the policy lists them; not the CRDs with fewer fields
		t.Run(s.resource, func(t *testing.T) {
			who := reporters(t, s)
			allowAll(t, controlplane.ServiceAccountUser(home, account))
			allowAll(t, certificateUser)
			s.tryAll(t, who, s.wideActions(t, byPolicy))
		})
	}
}

// others returns callers with all rights to which the policy must not apply.
func others(t *testing.T) []*caller {
	t.Helper()
	client := clientset()
	who := []*caller{asAdmin(t)}
	for _, name := range []string{"kms-health-operator", "kms-health-reporter", "another-kms-health-reporter-x"} {
		_, err := client.CoreV1().ServiceAccounts(home).Create(soon(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		need(t, err)
		allowAll(t, controlplane.ServiceAccountUser(home, name))
		who = append(who, as(t, name, token(t, name, nil)))
	}
	for _, user := range []string{"system:kms-health-reporter:x", openShifts + "-operator:kms-health-reporter-preflight",
		openShifts + ":kms-health-reporter-preflight"} {
		allowAll(t, user)
		who = append(who, as(t, user, certified(t, user)))
	}
	return who
}

// openShifts is a prefix of identities in a namespace of OpenShift. Their names may look like names of reporters.
const openShifts = "system:serviceaccount:openshift-kube-apiserver"

func TestPolicyHoldsInEachNamespaceWithReporters(t *testing.T) {
	s := operatorResources[0]
	reporters(t, s) // waits until the policy is active
	var who []*caller
	for _, user := range []string{openShifts + ":kms-health-reporter-kube-apiserver",
		"system:serviceaccount:" + contract.OperatorNamespace + ":kms-health-reporter-any",
		"system:serviceaccount:of-a-user:kms-health-reporter-any"} {
		allowAll(t, user)
		who = append(who, as(t, user, certified(t, user)))
	}
	s.tryAll(t, who, s.wideActions(t, byPolicy))
}

func TestPolicyIsForNobodyElse(t *testing.T) {
	s := operatorResources[0]
	reporters(t, s) // waits until the policy is active
	s.tryAll(t, others(t), s.wideActions(t, ok))
}

// A condition that violates the contract must not make the policy refuse a write that keeps or corrects it.
func TestReporterIsNotStoppedByWhatSomebodyLeft(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)
	admin := asAdmin(t)
	t.Cleanup(func() { s.reset(t, admin) })
	spoilt := s.baseline()
	for _, i := range []int{ofNodeA, ofNodeB} {
		left := spoilt["status"].(fields)["conditions"].([]any)[i].(fields)
		left["status"], left["reason"], left["message"] = "False", "Other", strings.Repeat("x", 40000)
	}
	for _, reporter := range who {
		s.put(t, admin, spoilt)
		reporter.expect(t, "own condition", s.condition(t, "node-a"), ok)
	}
}

// A policy that cannot be evaluated denies only the users to which it applies.
func TestPolicyThatCannotBeEvaluatedStopsReportersOnly(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)
	broken := objects.Policy()
	for _, u := range broken {
		u.SetName("broken")
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" {
			mustSet(t, u, "broken", "spec", "policyName")
			continue
		}
		mustSet(t, u, []any{fields{"expression": "dyn(object).status.missing == 1", "message": "never true"}}, "spec", "validations")
	}
	applyAll(t, broken...)
	t.Cleanup(func() { remove(t, broken) })
	for _, reporter := range who {
		eventually(t, "the broken policy is active for "+reporter.name, func() error {
			if got := reporter.do(t, s.condition(t, "node-a")); got.code != http.StatusForbidden && got.code != http.StatusUnprocessableEntity || !strings.Contains(got.message, "no such key: missing") {
				return fmt.Errorf("%d %s", got.code, got.message)
			}
			return nil
		})
	}
	s.tryAll(t, others(t), s.wideActions(t, ok))
}

func mustSet(t *testing.T, u *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	must.Succeed(t, unstructured.SetNestedField(u.Object, value, path...))
}

// remove deletes policies. The API server still enforces them for up to a second.
func remove(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	admin := asAdmin(t)
	for _, u := range all {
		if got := admin.do(t, request{method: http.MethodDelete, path: paths[u.GetKind()] + u.GetName()}); got.code != http.StatusOK && got.code != http.StatusNotFound {
			t.Errorf("delete %s %s: %d %s", u.GetKind(), u.GetName(), got.code, got.message)
		}
	}
}
