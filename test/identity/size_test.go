//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// large returns an object whose size may be near etcd's limit of 1.5 MiB.
func (s operatorResource) large(operators, nodes, message, reports int) fields {
	var conditions, typed, managed []any
	for i := range operators {
		conditions = append(conditions, condition(fmt.Sprintf("Controller%dDegraded", i), strings.Repeat("y", 200)))
	}
	for i := range nodes {
		node := fmt.Sprintf("node-%d.a-domain-as-long-as-they-are.example.com", i)
		if i == 0 {
			node = "node-a" // the node of the reporter under test
		}
		conditions = append(conditions, condition(contract.ConditionType(node), strings.Repeat("x", message)))
		managed = append(managed, fields{
			"manager": contract.ConditionManager(node), "operation": "Apply", "subresource": "status",
			"apiVersion": "operator.openshift.io/v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
			"fieldsV1": fields{"f:status": fields{"f:conditions": fields{
				`k:{"type":"` + contract.ConditionType(node) + `"}`: fields{".": fields{}, "f:message": fields{}, "f:type": fields{}},
			}}},
		})
		if len(typed) < reports {
			typed = append(typed, report(node, "1"))
		}
	}
	object := s.baseline()
	status := object["status"].(fields)
	status["conditions"] = conditions
	for k, v := range s.encryption(fields{"healthReports": typed, "preflight": preflight("Failed")}) {
		status[k] = v
	}
	object["metadata"].(fields)["managedFields"] = managed
	return object
}

// A policy whose evaluation exceeds the cost limit denies the request. These objects must not exceed it.
func TestPolicyAdmitsReportersOfLargeObjects(t *testing.T) {
	s := operatorResource{controlplane.KubeAPIServers, controlplane.TechPreviewNoUpgrade}
	who := reporters(t, s)
	admin := asAdmin(t)
	t.Cleanup(func() { s.reset(t, admin) })
	for _, size := range []struct {
		what                               string
		operators, nodes, message, reports int
	}{
		{"3 nodes", 30, 3, 400, 6},
		{"150 conditions, 35 of them with messages of 32 KiB", 115, 35, 32 << 10, 200},
		{"1,000 nodes", 150, 1000, 300, 200}, // the CRD allows 200 reports
	} {
		t.Run(size.what, func(t *testing.T) {
			object := s.large(size.operators, size.nodes, size.message, size.reports)
			s.put(t, admin, object)
			t.Logf("%d bytes", len(text(t, object)))
			for _, reporter := range who {
				own := s.apply(t, contract.ConditionManager("node-a"), fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[1]")}})
				reporter.expect(t, "own condition", own, ok)
				if got := reporter.do(t, managedBy(contract.ConditionManager("node-a"), s.merge(t, s.status(), fields{"status": fields{"version": "forged"}}))); got.outcome() != byPolicy || !strings.Contains(got.message, "a reporter may change") {
					t.Errorf("%s: another field: %d %.300s", reporter.name, got.code, got.message)
				}
			}
		})
	}
}

// A token that names no node may write for any node, but must not fill the object: then nobody could write to it.
func TestReportersCannotFillTheObject(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)[1:]
	admin := asAdmin(t)
	t.Cleanup(func() { s.reset(t, admin) })
	for what, c := range map[string]struct {
		nodes, message int    // how many nodes the object has, and the length of their messages
		add            string // the message that a new node adds
		want           string
	}{
		"99 conditions":            {99, 10, "[]", ok},
		"100 conditions":           {100, 10, "[]", byPolicy},
		"messages of 480 KiB":      {15, 32 << 10, strings.Repeat("x", 32<<10), ok},
		"messages of 512 KiB":      {16, 32 << 10, "[]", byPolicy},
		"messages of over 512 KiB": {20, 32 << 10, "[]", byPolicy},
	} {
		t.Run(what, func(t *testing.T) {
			s.put(t, admin, s.large(10, c.nodes, c.message, 1))
			added := s.apply(t, contract.ConditionManager("new"), fields{"conditions": []any{condition(contract.ConditionType("new"), c.add)}})
			for _, reporter := range who {
				reporter.expect(t, "a new node's condition", added.dry(), c.want)
				reporter.expect(t, "a condition that was there", s.condition(t, "node-a").dry(), ok)
			}
		})
	}
}

// managedFields has a manager as long as it owns a field.
func TestReportersCannotAddFieldManagersWithoutBound(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)[1:]
	admin := asAdmin(t)
	t.Cleanup(func() { s.reset(t, admin) })
	managers := func() int {
		metadata := admin.do(t, request{method: http.MethodGet, path: s.path()}).object["metadata"].(fields)
		all, _ := metadata["managedFields"].([]any)
		return len(all)
	}
	before := managers()
	for _, reporter := range who {
		for i := range 10 {
			for _, nothing := range []fields{{}, {"conditions": []any{}}} {
				reporter.do(t, s.apply(t, contract.ConditionManager(fmt.Sprintf("node-%d", i)), nothing))
			}
		}
		must.Equal(t, reporter.name+": managers after applies that own nothing", managers(), before)
	}
	for number, want := range map[int]string{255: ok, 256: byPolicy} {
		object := s.large(10, number, 10, 1)
		object["status"].(fields)["conditions"] = object["status"].(fields)["conditions"].([]any)[:20] // of ten nodes
		s.put(t, admin, object)                                                                        // the administrator owns new conditions
		s.put(t, admin, object)
		if got := managers(); got != number {
			t.Fatalf("%d field managers, want %d", got, number)
		}
		added := s.apply(t, contract.ConditionManager("new"), fields{"conditions": []any{condition(contract.ConditionType("new"), "[]")}})
		for _, reporter := range who {
			reporter.expect(t, fmt.Sprintf("one more than %d managers", number), added.dry(), want)
			reporter.expect(t, fmt.Sprintf("a manager of %d that was there", number), s.condition(t, "node-a").dry(), ok)
		}
	}
}

// The API server limits a field manager to 128 bytes.
func TestReporterOfANodeWithALongName(t *testing.T) {
	s := operatorResources[0]
	who := reporters(t, s)
	node := strings.Repeat("long.", 25) + "example.com"
	for _, reporter := range []*caller{as(t, "bound to it", bound(t, node)), who[1], who[2]} {
		reporter.expect(t, "its condition", s.condition(t, node), ok)
		forged := s.apply(t, contract.ConditionManager(node), fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[]")}})
		reporter.expect(t, "another node's condition", forged, byPolicy)
	}
	who[0].expect(t, "another node's condition", s.condition(t, node), byPolicy)
	for _, length := range []int{91, 108} { // its manager is not cut, so no other may look like it
		node := strings.Repeat("n", length)
		manager := contract.ConditionManager(node + strings.Repeat("n", 20))
		own := s.apply(t, manager, fields{"conditions": []any{condition(contract.ConditionType(node), "[]")}})
		what := fmt.Sprintf("a node's name of %d bytes: its condition under a cut manager", length)
		as(t, "bound to it", bound(t, node)).expect(t, what, own, byPolicy)
	}
}
