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

// kmsHealth is the object for the reports of a target on clusters without OpenShift's
// operator resources. It has a status with conditions, and nothing else.
var kmsHealth = operatorResource{contract.KMSHealths.Plural, controlplane.Default}

// createKMSHealth makes the object.
func createKMSHealth(t *testing.T) {
	t.Helper()
	got := asAdmin(t, cluster).do(t, request{method: http.MethodPost, path: collection(kmsHealth), body: kmsHealth.object(t, nil)})
	if got.code != http.StatusCreated && got.code != http.StatusConflict {
		t.Fatalf("%d %s", got.code, got.message)
	}
}

// collection is the path of all objects of a resource.
func collection(s operatorResource) string {
	return strings.TrimSuffix(s.path(), "/"+s.of().Name)
}

// reportersOfKMSHealth are a reporter with a token that names its node, and one without.
func reportersOfKMSHealth(t *testing.T) []*caller {
	t.Helper()
	createKMSHealth(t)
	install(t, cluster, kmsHealth.resource)
	kmsHealth.reset(t, asAdmin(t, cluster))
	all := []*caller{as(t, cluster, "bound to node-a", bound(t, cluster, "node-a")), as(t, cluster, "minted", token(t, cluster, account, nil))}
	for _, who := range all {
		eventually(t, who.name+" may, and is bounded", func() error {
			own := kmsHealth.condition(t, "node-a")
			forged := kmsHealth.apply(t, contract.ConditionManager("node-a"), fields{"conditions": []any{condition("KMSPluginsDegraded", "")}})
			own.path += "&dryRun=All"
			forged.path += "&dryRun=All"
			if got := who.do(t, own); got.code != http.StatusOK {
				return fmt.Errorf("own condition: %d %s", got.code, got.message)
			}
			if got := who.do(t, forged); got.outcome() != byPolicy {
				return fmt.Errorf("another condition: %d %s", got.code, got.message)
			}
			return nil
		})
	}
	return all
}

func TestReportersMayChangeTheirConditionOfKMSHealthAndNothingElse(t *testing.T) {
	s, manager := kmsHealth, contract.ConditionManager("node-a")
	own := contract.ConditionType("node-a")
	boundOnly := []string{byPolicy, ok}
	under := func(manager string, conditions ...any) request {
		return s.apply(t, manager, fields{"conditions": conditions})
	}
	merge := func(path string, change fields) request { return managedBy(manager, s.merge(t, path, change)) }
	get := func(path string) request { return request{method: http.MethodGet, path: path} }
	other := operatorResource{controlplane.KubeAPIServers, controlplane.Default}
	who := reportersOfKMSHealth(t)
	s.tryAll(t, cluster, who, []action{
		{"own condition", s.condition(t, "node-a"), all(ok)},
		{"own condition, message of 32769 bytes", under(manager, condition(own, strings.Repeat("x", 32769))), all(byPolicy)},
		{"own condition, under another manager", under("x", condition(own, "[]")), all(byPolicy)},
		{"own condition removed", managedBy(manager, s.change(t, "remove", "/status/conditions/2", nil)), all(ok)},
		{"another node's condition, under own manager", under(manager, condition(contract.ConditionType("node-b"), "[]")), all(byPolicy)},
		{"another node's condition, under its manager", s.condition(t, "node-b"), boundOnly},
		{"condition KMSPluginsDegraded", under(manager, condition("KMSPluginsDegraded", "")), all(byPolicy)},
		{"another writer's condition changed", under(manager, condition("NodeControllerDegraded", "forged")), all(byPolicy)},
		{"another writer's condition co-owned, as it is", under(manager, s.baselineCondition(ofNodeA), s.baselineCondition(theirs)), all(byPolicy)},
		{"all conditions removed", merge(s.status(), fields{"status": fields{"conditions": nil}}), all(byPolicy)},
		{"the status removed", merge(s.status(), fields{"status": nil}), all(byPolicy)},
		{"a label, by way of /status", merge(s.status(), fields{"metadata": fields{"labels": fields{"of": "reporter"}}}), all(unchanged)},
		{"a label", merge(s.path(), fields{"metadata": fields{"labels": fields{"of": "reporter"}}}), all(byRBAC)},
		{"PUT of the status", request{method: http.MethodPut, path: s.status(), body: s.object(t, fields{})}, all(byRBAC)},
		{"another target's object", merge(strings.Replace(s.status(), "/"+target+"/", "/other/", 1), fields{}), all(byRBAC)},
		{"GET of the object", get(s.path()), all(byRBAC)},
		{"LIST of the resource", get(collection(s)), all(byRBAC)},
		{"DELETE of the object", request{method: http.MethodDelete, path: s.path()}, all(byRBAC)},
		{"CREATE of an object", request{method: http.MethodPost, path: collection(s), body: s.object(t, nil)}, all(byRBAC)},
		{"an operator resource's status", other.condition(t, "node-a"), all(byRBAC)},
	})
	allowAll(t, cluster, controlplane.ServiceAccountUser(home, account))
	s.tryAll(t, cluster, who, []action{
		{"a label, without RBAC", merge(s.path(), fields{"metadata": fields{"labels": fields{"new": "x"}}}), all(byPolicy)},
		{"a finalizer, without RBAC", merge(s.path(), fields{"metadata": fields{"finalizers": []any{"example.com/x"}}}), all(byPolicy)},
	})
}

func TestOperatorMayChangeItsConditionsOfKMSHealthAndRemoveReports(t *testing.T) {
	s := kmsHealth
	createKMSHealth(t)
	under := func(manager string, conditions ...any) request {
		return s.apply(t, manager, fields{"conditions": conditions})
	}
	remove := func(i int) request {
		return managedBy(cleanupManager, s.change(t, "remove", fmt.Sprintf("/status/conditions/%d", i), nil))
	}
	s.tryAll(t, cluster, []*caller{theOperator(t, s)}, []action{
		{"own conditions", under(operatorManager, condition("KMSPluginsDegraded", "x"), condition("KMSHealthReporting", "x"), condition("KMSWriteKeyAgreed", "x")), all(ok)},
		{"own condition, under another manager", under("x", condition("KMSPluginsDegraded", "x")), all(byPolicy)},
		{"a reporter's condition removed", remove(ofNodeA), all(ok)},
		{"a reporter's condition changed", under(operatorManager, condition(contract.ConditionType("node-a"), "forged")), all(byPolicy)},
		{"a reporter's condition added", under(operatorManager, condition(contract.ConditionType("node-c"), "[]")), all(byPolicy)},
		{"another writer's condition changed", under(operatorManager, condition("NodeControllerDegraded", "forged")), all(byPolicy)},
		{"another writer's condition removed", remove(theirs), all(byPolicy)},
		{"a label", managedBy(operatorManager, s.merge(t, s.path(), fields{"metadata": fields{"labels": fields{"new": "x"}}})), all(byPolicy)},
	})
}
