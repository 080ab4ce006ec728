//go:build integration

package identity

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// fields is a JSON object.
type fields = map[string]any

// operatorResource is a resource that reporters write to, with one variant of its CRD.
type operatorResource struct {
	resource string
	variant  controlplane.Variant
}

func (s operatorResource) typed() bool { return s.variant != controlplane.Default }
func (s operatorResource) of() contract.Resource {
	return contract.ResourceFor(s.resource, target)
}
func (s operatorResource) status() string { return "/" + strings.Join(s.of().StatusPath(), "/") }
func (s operatorResource) path() string   { return strings.TrimSuffix(s.status(), "/status") }

// encryption returns a status with this encryptionStatus, in the field where the resource has it.
func (s operatorResource) encryption(content fields) fields {
	status := fields{"encryptionStatus": content}
	if s.resource == controlplane.Authentications {
		return fields{"oauthAPIServer": status}
	}
	return status
}

// encryptionPath returns a JSON pointer to encryptionStatus.
func (s operatorResource) encryptionPath() string {
	if s.resource == controlplane.Authentications {
		return "/status/oauthAPIServer/encryptionStatus"
	}
	return "/status/encryptionStatus"
}

func report(node, key string) fields {
	return fields{"nodeName": node, "keyID": key, "status": "Healthy", "lastCheckedTime": "2026-01-01T00:00:00Z", "remoteKeyID": "kek"}
}

func condition(conditionType, message string) fields {
	return fields{"type": conditionType, "status": "True", "reason": "AsExpected", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
}

func preflight(result string) fields {
	return fields{"observedConfigHash": "abcdefgh", "result": fields{"status": result, "configHash": "abcdefgh", "remoteKeyID": "kek"}}
}

// Indexes in the baseline's conditions.
const (
	theirs = iota
	theirsToo
	ofNodeA
	ofNodeB
)

// baseline returns the object before each action. An operator and the reporters of two nodes have written to it.
func (s operatorResource) baseline() fields {
	conditions := []any{
		theirs:    condition("NodeControllerDegraded", "not ours"),
		theirsToo: condition("StaticPodsAvailable", "not ours"),
		ofNodeA:   condition(contract.ConditionType("node-a"), "[]"),
		ofNodeB:   condition(contract.ConditionType("node-b"), "[]"),
	}
	if s == kmsHealth {
		return fields{"metadata": fields{"labels": fields{"of": "admin"}}, "status": fields{"conditions": conditions}}
	}
	status := fields{
		"version": "5.0.0", "readyReplicas": int64(3), "latestAvailableRevision": int64(7),
		"conditions": conditions,
	}
	if s.typed() {
		maps.Copy(status, s.encryption(fields{"healthReports": []any{report("node-a", "1"), report("node-b", "1")}, "preflight": preflight("Failed")}))
	}
	if s.resource == controlplane.Authentications {
		oauth, _ := status["oauthAPIServer"].(fields)
		if oauth == nil {
			oauth = fields{}
		}
		oauth["latestAvailableRevision"] = int64(5)
		status["oauthAPIServer"] = oauth
	}
	return fields{"metadata": fields{"labels": fields{"of": "admin"}}, "spec": fields{"managementState": "Managed"}, "status": status}
}

func (s operatorResource) baselineCondition(index int) any {
	return s.baseline()["status"].(fields)["conditions"].([]any)[index]
}

// reset restores the baseline, as the administrator.
func (s operatorResource) reset(t *testing.T, admin *caller) {
	t.Helper()
	s.put(t, admin, s.baseline())
}

// put replaces the object's labels, spec and status, and its managedFields if wanted has them.
func (s operatorResource) put(t *testing.T, admin *caller, wanted fields) {
	t.Helper()
	for _, path := range []string{s.path(), s.status()} {
		live := admin.do(t, request{method: http.MethodGet, path: s.path()})
		if live.code != http.StatusOK {
			t.Fatalf("read %s: %d %s", s.path(), live.code, live.message)
		}
		metadata := fields{"name": s.of().Name, "resourceVersion": live.object["metadata"].(fields)["resourceVersion"]}
		maps.Copy(metadata, wanted["metadata"].(fields))
		live.object["metadata"], live.object["spec"], live.object["status"] = metadata, wanted["spec"], wanted["status"]
		if got := admin.do(t, request{method: http.MethodPut, path: path, body: text(t, live.object)}); got.code != http.StatusOK {
			t.Fatalf("reset %s: %d %s", path, got.code, got.message)
		}
	}
}

// content returns the object without its bookkeeping.
func (s operatorResource) content(t *testing.T, admin *caller) fields {
	t.Helper()
	live := admin.do(t, request{method: http.MethodGet, path: s.path()})
	if live.code != http.StatusOK {
		t.Fatalf("read %s: %d %s", s.path(), live.code, live.message)
	}
	return withoutBookkeeping(live.object)
}

// withoutBookkeeping removes the metadata that the API server sets at each write.
func withoutBookkeeping(object fields) fields {
	for _, name := range []string{"managedFields", "resourceVersion", "generation"} {
		delete(object["metadata"].(fields), name)
	}
	return object
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must.Succeed(t, err)
	return string(raw)
}

// object returns a request body with the object's name and this status.
func (s operatorResource) object(t *testing.T, status fields) string {
	t.Helper()
	return text(t, fields{"apiVersion": s.of().GVR().GroupVersion().String(), "kind": s.of().Kind, "metadata": fields{"name": s.of().Name}, "status": status})
}

// apply returns the request by which a reporter writes.
func (s operatorResource) apply(t *testing.T, manager string, status fields) request {
	t.Helper()
	return request{http.MethodPatch, s.status() + "?force=true&fieldManager=" + manager, applyType, s.object(t, status)}
}

// condition returns the PATCH of a reporter's condition.
func (s operatorResource) condition(t *testing.T, node string) request {
	t.Helper()
	return s.apply(t, contract.ConditionManager(node), fields{"conditions": []any{condition(contract.ConditionType(node), `[{"keyID":"1"}]`)}})
}

// reports returns a PATCH of healthReports of node-a.
func (s operatorResource) reports(t *testing.T) request {
	t.Helper()
	return s.apply(t, contract.ConditionManager("node-a"), s.encryption(fields{"healthReports": []any{report("node-a", "2")}}))
}

// managedBy adds a field manager to a request that has none.
func managedBy(manager string, r request) request {
	r.path += "?fieldManager=" + manager
	return r
}

func (s operatorResource) merge(t *testing.T, path string, change fields) request {
	t.Helper()
	return request{http.MethodPatch, path, mergeType, text(t, change)}
}

// change returns a JSON patch on the status, with one operation.
func (s operatorResource) change(t *testing.T, operation, pointer string, value any) request {
	t.Helper()
	return request{http.MethodPatch, s.status(), jsonType, text(t, []any{fields{"op": operation, "path": pointer, "value": value}})}
}
