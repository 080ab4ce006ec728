//go:build integration

package identity

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	manifests "github.com/kms-health/kms-health/test/manifests/install"
)

const (
	operatorAccount = "kms-health-operator"
	operatorManager = "kms-health-operator"
	cleanupManager  = "kms-health-operator-cleanup"
)

// theOperator returns the operator's ServiceAccount as a caller, with all rights on operator resources. The policy
// that limits it is active.
func theOperator(t *testing.T, s operatorResource) *caller {
	t.Helper()
	install(t, s)
	_, err := clientset().CoreV1().ServiceAccounts(home).Create(soon(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: operatorAccount}}, metav1.CreateOptions{})
	need(t, err)
	allowAll(t, controlplane.ServiceAccountUser(home, operatorAccount))
	text := disk.Read(t, "../../manifests/common/0000_50_kms-health-operator_03_operator-status-policy.yaml")
	all, err := manifests.Decode(text)
	need(t, err)
	applyAll(t, all...)
	t.Cleanup(func() { remove(t, all) })
	s.reset(t, asAdmin(t))
	who := as(t, "operator", token(t, operatorAccount, nil))
	eventually(t, "the operator's policy is active", func() error {
		forged := managedBy(operatorManager, s.merge(t, s.status(), fields{"status": fields{"conditions": nil}}))
		return who.tried(t, forged.dry(), byPolicy)
	})
	return who
}

func (s operatorResource) operatorActions(t *testing.T) []action {
	t.Helper()
	merge := func(change fields) request {
		return managedBy(operatorManager, s.merge(t, s.status(), fields{"status": change}))
	}
	remove := func(pointer string) request { return managedBy(cleanupManager, s.change(t, "remove", pointer, nil)) }
	under := func(manager string, conditions ...any) request {
		return s.apply(t, manager, fields{"conditions": conditions})
	}
	at := func(i int) string { return fmt.Sprintf("/status/conditions/%d", i) }
	reporters := contract.ConditionType("node-a")
	var own []any
	actions := s.wideActions(t, byPolicy)
	for _, conditionType := range rollup.Types {
		own = append(own, condition(conditionType, "x"))
		actions = append(actions, action{"condition " + conditionType, under(operatorManager, condition(conditionType, "x")), all(ok)})
	}
	actions = append(actions, []action{
		{"all own conditions", under(operatorManager, own...), all(ok)},
		{"own condition, under another manager", under("x", own[0]), all(byPolicy)},
		{"own condition, owned by an update", managedBy(operatorManager, s.change(t, "add", "/status/conditions/-", own[0])), all(byPolicy)},
		{"own condition, under a reporter's manager", under(contract.ConditionManager("node-a"), own[0], s.baselineCondition(ofNodeA)), all(byPolicy)},
		{"condition KMSHealthOtherDegraded", under(operatorManager, condition("KMSHealthOtherDegraded", "x")), all(byPolicy)},
		{"condition KmsHealthReportsDegraded", under(operatorManager, condition("KmsHealthReportsDegraded", "x")), all(byPolicy)},
		{"an operator's condition changed", under(operatorManager, condition("NodeControllerDegraded", "forged")), all(byPolicy)},
		{"an operator's condition co-owned, as it is", under(operatorManager, s.baselineCondition(theirs)), all(byPolicy)},
		{"an operator's condition removed", remove(at(theirs)), all(byPolicy)},
		{"a reporter's condition removed", remove(at(ofNodeA)), all(ok)},
		{"a reporter's condition changed", under(operatorManager, condition(reporters, "forged")), all(byPolicy)},
		{"a reporter's condition added", under(operatorManager, condition(contract.ConditionType("node-c"), "[]")), all(byPolicy)},
		{"a reporter's condition co-owned, as it is", under(operatorManager, s.baselineCondition(ofNodeA)), all(byPolicy)},
		{"a reporter's condition removed, under its manager", managedBy(contract.ConditionManager("node-a"), s.change(t, "remove", at(ofNodeA), nil)), all(byPolicy)},
		{"all conditions removed", merge(fields{"conditions": nil}), all(byPolicy)},
		{"status.version removed", merge(fields{"version": nil}), all(byPolicy)},
		{"status.latestAvailableRevision", merge(fields{"latestAvailableRevision": 9}), all(byPolicy)},
		{"the status removed", managedBy(operatorManager, s.merge(t, s.status(), fields{"status": nil})), all(byPolicy)},
	}...)
	if !s.typed() {
		return actions
	}
	actions = append(actions, []action{
		{"healthReports of a node removed", remove(s.encryptionPath() + "/healthReports/0"), all(byPolicy)},
		{"healthReports co-owned, as they are", s.apply(t, operatorManager, s.encryption(fields{"healthReports": []any{report("node-a", "1")}})), all(byPolicy)},
		{"preflight Succeeded, applied", s.apply(t, operatorManager, s.encryption(fields{"preflight": preflight("Succeeded")})), all(byPolicy)},
		{"encryptionStatus removed", remove(s.encryptionPath()), all(byPolicy)},
	}...)
	if s.resource == controlplane.Authentications {
		actions = append(actions, action{"oauthAPIServer.latestAvailableRevision", merge(fields{"oauthAPIServer": fields{"latestAvailableRevision": 9}}), all(byPolicy)})
	}
	return actions
}

func TestOperatorMayChangeItsConditionsAndRemoveReportsAndNothingElse(t *testing.T) {
	for _, s := range operatorResources {
		t.Run(s.resource+"/"+string(s.variant), func(t *testing.T) {
			s.tryAll(t, []*caller{theOperator(t, s)}, s.operatorActions(t))
		})
	}
}

// A policy whose evaluation exceeds the cost limit denies the request.
func TestOperatorsPolicyAdmitsRemovalFromLargeObjects(t *testing.T) {
	s := operatorResources[0]
	operator, admin := theOperator(t, s), asAdmin(t)
	t.Cleanup(func() { s.reset(t, admin) })
	for _, size := range []struct{ operators, nodes, message, reports int }{{100, 100, 300, 200}, {100, 400, 300, 200}} {
		s.put(t, admin, s.large(size.operators, size.nodes, size.message, size.reports))
		for what, try := range map[string]request{
			"own condition":          s.apply(t, operatorManager, fields{"conditions": []any{condition(contract.PluginsDegraded, "x")}}),
			"a reporter's condition": managedBy(cleanupManager, s.change(t, "remove", fmt.Sprintf("/status/conditions/%d", size.operators), nil)),
		} {
			operator.expect(t, fmt.Sprintf("%+v: %s", size, what), try, ok)
		}
		forged := managedBy(operatorManager, s.merge(t, s.status(), fields{"status": fields{"version": "forged"}}))
		operator.expect(t, fmt.Sprintf("%+v: another field", size), forged, byPolicy)
	}
}
