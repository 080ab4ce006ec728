//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/controlplane"
)

// large is an object near etcd's bound of 1.5 MiB.
func (s site) large(operators, nodes, message, reports int) fields {
	var conditions, typed, managed []any
	for i := range operators {
		conditions = append(conditions, condition(fmt.Sprintf("Controller%dDegraded", i), strings.Repeat("y", 200)))
	}
	for i := range nodes {
		node := fmt.Sprintf("node-%d.a-domain-as-long-as-they-are.example.com", i)
		conditions = append(conditions, condition(health.ConditionType(node), strings.Repeat("x", message)))
		managed = append(managed, fields{
			"manager": health.ConditionManager(node), "operation": "Apply", "subresource": "status",
			"apiVersion": "operator.openshift.io/v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
			"fieldsV1": fields{"f:status": fields{"f:conditions": fields{
				`k:{"type":"` + health.ConditionType(node) + `"}`: fields{".": fields{}, "f:message": fields{}, "f:type": fields{}},
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

// A policy over its budget of cost denies. None of these is.
func TestPolicyAdmitsReportersOfLargeObjects(t *testing.T) {
	s := site{controlplane.KubeAPIServers, controlplane.TechPreviewNoUpgrade}
	who := reporters(t, variant(t, s.variant), s)
	admin := asAdmin(t, cluster)
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
			// The policy does not look at the administrator: the rest is its price.
			without := s.patches(t, admin)
			for _, reporter := range who {
				t.Logf("%d bytes, %s: PATCH in %v, without the policy in %v", len(text(t, object)), reporter.name, s.patches(t, reporter), without)
				if size.reports < 200 {
					if got := reporter.do(t, s.reports(t, "node-a")); got.code != http.StatusOK {
						t.Errorf("%s: own reports: %d %.300s", reporter.name, got.code, got.message)
					}
				}
				if got := reporter.do(t, s.merge(t, s.status(), fields{"status": fields{"version": "forged"}})); got.outcome() != byPolicy || !strings.Contains(got.message, "a reporter may change") {
					t.Errorf("%s: another field: %d %.300s", reporter.name, got.code, got.message)
				}
			}
		})
	}
}

// patches writes a reporter's condition some times, and returns how long it took
// at best.
func (s site) patches(t *testing.T, who *caller) time.Duration {
	t.Helper()
	best := patience
	for i := range 5 {
		c := condition(health.ConditionType("node-a"), fmt.Sprint(i))
		start := time.Now()
		got := who.do(t, s.apply(t, health.ConditionManager("node-a"), fields{"conditions": []any{c}}))
		best = min(best, time.Since(start))
		if got.code != http.StatusOK {
			t.Fatalf("%s: own condition: %d %.300s", who.name, got.code, got.message)
		}
	}
	return best.Round(time.Millisecond)
}
