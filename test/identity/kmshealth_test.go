//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// kmsHealth is the resource for reports on clusters without OpenShift's operator resources. Its status has only
// conditions.
var kmsHealth = operatorResource{contract.KMSHealths.Plural, controlplane.Default}

// collection returns the path of all objects of a resource.
func collection(s operatorResource) string {
	return strings.TrimSuffix(s.path(), "/"+s.of().Name)
}

func TestIdentitiesMayChangeTheirConditionsOfKMSHealthAndNothingElse(t *testing.T) {
	s, manager := kmsHealth, contract.ConditionManager("node-a")
	who := reporters(t, s)
	under := func(manager string, conditions ...any) request {
		return s.apply(t, manager, fields{"conditions": conditions})
	}
	removal := func(manager string, i int) request {
		return managedBy(manager, s.change(t, "remove", fmt.Sprintf("/status/conditions/%d", i), nil))
	}
	merge := func(manager, path string, change fields) request { return managedBy(manager, s.merge(t, path, change)) }
	label := fields{"metadata": fields{"labels": fields{"new": "x"}}}
	s.tryAll(t, who, []action{
		{"own condition", s.condition(t, "node-a"), all(ok)},
		{"own condition, message of 32769 bytes", under(manager, condition(contract.ConditionType("node-a"), strings.Repeat("x", 32769))), all(byPolicy)},
		{"own condition, owned by an update", managedBy(manager, s.change(t, "replace", fmt.Sprintf("/status/conditions/%d/message", ofNodeA), "[1]")), all(byPolicy)},
		{"own condition removed", removal(manager, ofNodeA), all(ok)},
		{"another node's condition, under own manager", under(manager, condition(contract.ConditionType("node-b"), "[]")), all(byPolicy)},
		{"another node's condition, under its manager", s.condition(t, "node-b"), onlyBound},
		{"condition KMSPluginsDegraded", under(manager, condition("KMSPluginsDegraded", "")), all(byPolicy)},
		{"another writer's condition co-owned, as it is", under(manager, s.baselineCondition(ofNodeA), s.baselineCondition(theirs)), all(byPolicy)},
		{"the status removed", merge(manager, s.status(), fields{"status": nil}), all(byPolicy)},
		{"a label", merge(manager, s.path(), label), all(byRBAC)},
		{"GET of the object", request{method: http.MethodGet, path: s.path()}, all(byRBAC)},
		{"DELETE of the object", request{method: http.MethodDelete, path: s.path()}, all(byRBAC)},
		{"CREATE of an object", request{method: http.MethodPost, path: collection(s), body: s.object(t, nil)}, all(byRBAC)},
		{"an operator resource's status", operatorResources[0].condition(t, "node-a"), all(byRBAC)},
	})
	allowAll(t, controlplane.ServiceAccountUser(home, account))
	allowAll(t, certificateUser)
	cleared := fields{"metadata": fields{"managedFields": []any{fields{}}}}
	s.tryAll(t, who, []action{
		{"a label, without RBAC", merge(manager, s.path(), label), all(byPolicy)},
		{"managedFields cleared, without RBAC", merge(manager, s.path(), cleared), all(byPolicy)},
	})

	s.tryAll(t, []*caller{theOperator(t, s)}, []action{
		{"own conditions", under(operatorManager, condition("KMSPluginsDegraded", "x"), condition("KMSHealthReporting", "x"), condition("KMSWriteKeyAgreed", "x")), all(ok)},
		{"a reporter's condition removed", removal(cleanupManager, ofNodeA), all(ok)},
		{"a reporter's condition changed", under(operatorManager, condition(contract.ConditionType("node-a"), "forged")), all(byPolicy)},
		{"another writer's condition removed", removal(cleanupManager, theirs), all(byPolicy)},
	})
}
