//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// The outcomes in the tables. "unchanged": the API server accepted the request and changed nothing.
const (
	ok        = "200"
	unchanged = "200 unchanged"
	byPolicy  = "403 policy"
	byRBAC    = "403 RBAC"
)

// action is a request that callers try. want has an outcome for each caller, or one for all.
type action struct {
	what string
	try  request
	want []string
}

// onlyBound: refused only for a token that is bound to node-a. The other identities name no node, so the policy cannot
// check it.
var onlyBound = []string{byPolicy, ok, ok}

func all(outcome string) []string { return []string{outcome} }

// statusActions try the status that a reporter may PATCH.
func (s operatorResource) statusActions(t *testing.T) []action {
	t.Helper()
	own, other := contract.ConditionType("node-a"), contract.ConditionType("node-b")
	manager := contract.ConditionManager("node-a")
	under := func(manager string, conditions ...any) request {
		return s.apply(t, manager, fields{"conditions": conditions})
	}
	apply := func(c fields) request { return under(manager, c) }
	merge := func(path string, change fields) request { return managedBy(manager, s.merge(t, path, change)) }
	change := func(operation, pointer string, value any) request {
		return managedBy(manager, s.change(t, operation, pointer, value))
	}
	with := func(key string, value any) fields {
		c := condition(own, "[]")
		c[key] = value
		return c
	}
	conditionsOf := func(order ...int) fields {
		var list []any
		for _, i := range order {
			list = append(list, s.baselineCondition(i))
		}
		return fields{"status": fields{"conditions": list}}
	}
	conditionsWith := func(own fields) fields {
		all := conditionsOf(theirs, theirsToo, ofNodeA, ofNodeB)
		all["status"].(fields)["conditions"].([]any)[ofNodeA] = own
		return all
	}
	at := func(i int) string { return fmt.Sprintf("/status/conditions/%d", i) }
	actions := []action{
		{"own condition", s.condition(t, "node-a"), all(ok)},
		{"own condition, message of 32768 bytes", apply(with("message", strings.Repeat("x", 32768))), all(ok)},
		{"own condition, message of 32769 bytes", apply(with("message", strings.Repeat("x", 32769))), all(byPolicy)},
		{"own condition, 16385 runes of 2 bytes", apply(with("message", strings.Repeat("é", 16385))), all(byPolicy)},
		{"own condition, status False", apply(with("status", "False")), all(byPolicy)},
		{"own condition, another reason", apply(with("reason", "Other")), all(byPolicy)},
		{"own condition, under another manager", under("x", condition(own, "[]")), all(byPolicy)},
		{"own condition, under the operator's manager", under("kms-health-operator", condition(own, "[]")), all(byPolicy)},
		{"own condition, under another node's manager", under(contract.ConditionManager("node-b"), condition(own, "[1]"), s.baselineCondition(ofNodeB)), all(byPolicy)},
		{"own condition, no manager named", s.merge(t, s.status(), conditionsWith(with("message", "[1]"))), all(byPolicy)},
		{"own condition, owned by an update", merge(s.status(), conditionsWith(with("message", "[1]"))), all(byPolicy)},
		{"own condition removed", change("remove", at(ofNodeA), nil), all(ok)},
		{"another node's condition, under own manager", apply(condition(other, "[]")), all(byPolicy)},
		{"another node's condition, under its manager", s.condition(t, "node-b"), onlyBound},
		{"another node's condition removed", managedBy(contract.ConditionManager("node-b"), s.change(t, "remove", at(ofNodeB), nil)), onlyBound},
		{"another node's condition removed, under own manager", change("remove", at(ofNodeB), nil), all(byPolicy)},
		{"a new node's condition", s.condition(t, "node-c"), onlyBound},
		{"a node whose name begins with ours", s.condition(t, "node-a.example"), onlyBound},
		{"condition KMSHealthReporter_Degraded", under("kms-health-reporter-Degraded", condition("KMSHealthReporter_Degraded", "")), all(byPolicy)},
		{"condition KMSHealthReporter_x_Degraded", under("kms-health-reporter-x_Degraded", condition("KMSHealthReporter_x_Degraded", "")), all(byPolicy)},
		{"condition KMSPluginsDegraded", apply(condition("KMSPluginsDegraded", "")), all(byPolicy)},
		{"an operator's condition changed", apply(condition("NodeControllerDegraded", "forged")), all(byPolicy)},
		{"an operator's condition co-owned, as it is", under(manager, s.baselineCondition(ofNodeA), s.baselineCondition(theirs)), all(byPolicy)},
		{"status.version co-owned, as it is", s.apply(t, manager, fields{"version": "5.0.0", "conditions": []any{s.baselineCondition(ofNodeA)}}), all(byPolicy)},
		{"an operator's condition removed", change("remove", at(theirs), nil), all(byPolicy)},
		{"an operator's condition doubled", change("add", "/status/conditions/-", condition("NodeControllerDegraded", "not ours")), all("422")},
		{"operators' conditions reordered", merge(s.status(), conditionsOf(theirsToo, theirs, ofNodeA, ofNodeB)), all(byPolicy)},
		{"all conditions removed", merge(s.status(), fields{"status": fields{"conditions": nil}}), all(byPolicy)},
		{"the status removed", merge(s.status(), fields{"status": nil}), all(byPolicy)},
		{"status.version", merge(s.status(), fields{"status": fields{"version": "forged"}}), all(byPolicy)},
		{"status.version removed", merge(s.status(), fields{"status": fields{"version": nil}}), all(byPolicy)},
		{"status.observedGeneration added", merge(s.status(), fields{"status": fields{"observedGeneration": 1}}), all(byPolicy)},
		{"spec, by way of /status", merge(s.status(), fields{"spec": fields{"managementState": "Force"}}), all(unchanged)},
		{"a label, by way of /status", merge(s.status(), fields{"metadata": fields{"labels": fields{"of": "reporter"}}}), all(unchanged)},
		{"managedFields emptied", merge(s.status(), fields{"metadata": fields{"managedFields": []any{fields{}}}}), all(unchanged)},
		{"managedFields emptied, of the object", merge(s.path(), fields{"metadata": fields{"managedFields": []any{fields{}}}}), all(byRBAC)},
		{"spec", merge(s.path(), fields{"spec": fields{"managementState": "Force"}}), all(byRBAC)},
		{"a label", merge(s.path(), fields{"metadata": fields{"labels": fields{"of": "reporter"}}}), all(byRBAC)},
		{"PUT of the status", request{method: http.MethodPut, path: s.status(), body: s.object(t, fields{})}, all(byRBAC)},
		{"another object of the resource", merge(strings.Replace(s.status(), "/cluster/", "/other/", 1), fields{}), all(byRBAC)},
		{"own condition and another node's", under(manager, condition(own, "[]"), condition(other, "forged")), all(byPolicy)},
	}
	return append(actions, s.typedActions(t)...)
}

// typedActions try encryptionStatus. A Default CRD does not have it: the API server answers an apply with 500, and
// prunes other patches.
func (s operatorResource) typedActions(t *testing.T) []action {
	t.Helper()
	manager := contract.ConditionManager("node-a")
	merge := func(path string, change fields) request { return managedBy(manager, s.merge(t, path, change)) }
	forged := s.apply(t, manager, s.encryption(fields{"preflight": preflight("Succeeded")}))
	merged := merge(s.status(), fields{"status": s.encryption(fields{"preflight": preflight("Succeeded")})})
	if !s.typed() {
		return []action{
			{"own healthReports", s.reports(t), all("500")},
			{"preflight Succeeded", forged, all("500")},
			{"preflight Succeeded, by a merge patch", merged, all(unchanged)},
		}
	}
	// The policy compares the field as a whole, whoever manages it.
	actions := []action{
		{"own node's healthReports", s.reports(t), all(byPolicy)},
		{"own node's healthReports co-owned, as they are", s.apply(t, manager, s.encryption(fields{"healthReports": []any{report("node-a", "1")}})), all(byPolicy)},
		{"preflight Succeeded", forged, all(byPolicy)},
		{"preflight Succeeded, by a merge patch", merged, all(byPolicy)},
		{"encryptionStatus removed", managedBy(manager, s.change(t, "remove", s.encryptionPath(), nil)), all(byPolicy)},
	}
	if s.resource == controlplane.Authentications {
		actions = append(actions, action{"oauthAPIServer.latestAvailableRevision", merge(s.status(), fields{"status": fields{"oauthAPIServer": fields{"latestAvailableRevision": 9}}}), all(byPolicy)})
	}
	return actions
}

// otherActions try other objects in the cluster.
func (s operatorResource) otherActions(t *testing.T) []action {
	t.Helper()
	another := operatorResource{controlplane.OpenShiftAPIServers, s.variant}
	sa := "/api/v1/namespaces/" + home + "/serviceaccounts/" + account
	get := func(path string) request { return request{method: http.MethodGet, path: path} }
	return []action{
		{"another resource's status", another.condition(t, "node-a"), all(byRBAC)},
		{"GET of the object", get(s.path()), all(byRBAC)},
		{"GET of its status", get(s.status()), all(byRBAC)},
		{"LIST of the resource", get("/apis/operator.openshift.io/v1/" + s.resource), all(byRBAC)},
		{"WATCH of the resource", get("/apis/operator.openshift.io/v1/" + s.resource + "?watch=1"), all(byRBAC)},
		{"CREATE of an object", request{method: http.MethodPost, path: "/apis/operator.openshift.io/v1/" + s.resource, body: s.object(t, nil)}, all(byRBAC)},
		{"DELETE of the object", request{method: http.MethodDelete, path: s.path()}, all(byRBAC)},
		{"DELETE of all", request{method: http.MethodDelete, path: "/apis/operator.openshift.io/v1/" + s.resource}, all(byRBAC)},
		{"GET of a Secret", get("/api/v1/namespaces/" + home + "/secrets/any"), all(byRBAC)},
		{"LIST of Secrets", get("/api/v1/secrets"), all(byRBAC)},
		{"GET of a ConfigMap", get("/api/v1/namespaces/" + home + "/configmaps/any"), all(byRBAC)},
		{"LIST of ConfigMaps", get("/api/v1/configmaps"), all(byRBAC)},
		{"GET of a pod", get("/api/v1/namespaces/" + home + "/pods/any"), all(byRBAC)},
		{"LIST of pods", get("/api/v1/pods"), all(byRBAC)},
		{"GET of a node", get("/api/v1/nodes/node-a"), all(byRBAC)},
		{"LIST of CRDs", get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), all(byRBAC)},
		{"a token of its own ServiceAccount", request{method: http.MethodPost, path: sa + "/token", body: `{}`}, all(byRBAC)},
		{"a CSR", request{method: http.MethodPost, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: `{}`}, all(byRBAC)},
		{"GET of the policy", get(paths["ValidatingAdmissionPolicy"] + "kms-health-reporter"), all(byRBAC)},
		{"DELETE of the policy", request{method: http.MethodDelete, path: paths["ValidatingAdmissionPolicy"] + "kms-health-reporter"}, all(byRBAC)},
	}
}

// tryAll runs each action as each caller, as a dry run on the baseline.
func (s operatorResource) tryAll(t *testing.T, who []*caller, actions []action) {
	t.Helper()
	admin := asAdmin(t)
	// Until the first apply, an object that was created without fields has no managedFields.
	admin.expect(t, "a report", s.condition(t, "node-a"), ok)
	s.reset(t, admin)
	before := s.content(t, admin)
	for _, a := range actions {
		for i, caller := range who {
			got := caller.do(t, a.try.dry())
			outcome := got.outcome()
			if got.code == http.StatusOK && reflect.DeepEqual(before, withoutBookkeeping(got.object)) {
				outcome = unchanged
			}
			if want := a.want[min(i, len(a.want)-1)]; outcome != want {
				t.Errorf("%s, %s: %s, want %s: %s", a.what, caller.name, outcome, want, got.message)
			}
		}
	}
	must.Equal(t, "the object after dry runs", s.content(t, admin), before)
}

func TestReportersMayChangeTheirEntriesAndNothingElse(t *testing.T) {
	for _, s := range operatorResources {
		t.Run(s.resource+"/"+string(s.variant), func(t *testing.T) {
			who := reporters(t, s)
			s.tryAll(t, who, s.statusActions(t))
		})
	}
}

func TestReportersMayDoNothingElseInACluster(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)
	s.tryAll(t, who, s.otherActions(t))
}

// operatorResources are in the order that changes the CRDs least often.
var operatorResources = []operatorResource{
	{controlplane.KubeAPIServers, controlplane.TechPreviewNoUpgrade},
	{controlplane.OpenShiftAPIServers, controlplane.TechPreviewNoUpgrade},
	{controlplane.Authentications, controlplane.TechPreviewNoUpgrade},
	{controlplane.KubeAPIServers, controlplane.Default},
	{controlplane.Authentications, controlplane.Default},
}
