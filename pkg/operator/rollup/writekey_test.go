package rollup

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// A key is agreed on when every API server writes with it, not only those that already
// have it. Revision 7 is before a change, 8 after it.
func TestTheWriteKeyIsAgreedOnWhenEveryAPIServerWritesWithIt(t *testing.T) {
	report := func(node string, keys ...string) operatorcr.Report {
		r := operatorcr.Report{Node: node, Form: operatorcr.FormCondition, Ours: true, Written: now}
		for _, key := range keys {
			r.Entries = append(r.Entries, health.Entry{KeyID: key, KEKID: "kek-" + key, Status: health.Healthy, LastChecked: now, Interval: 30 * time.Second})
		}
		return r
	}
	reading := plugins("2")
	reading[0].Role = v1alpha1.RoleRead
	nodes := map[string]source.Node{}
	for _, name := range []string{"a", "b", "c"} {
		nodes[name] = source.Node{Name: name, Ready: true}
	}
	for _, tt := range []struct {
		name          string
		target        *target
		before, after []v1alpha1.Plugin
		rolled        int
		reports       []operatorcr.Report
		want          string
	}{
		{"aescbc to KMS, 1 of 3", withKeys("2"), nil, plugins("2"), 1, []operatorcr.Report{report("a", "2")}, "False WriteKeyNotDeployed"},
		{"aescbc to KMS, 2 of 3", withKeys("2"), nil, plugins("2"), 2, []operatorcr.Report{report("a", "2"), report("b", "2")}, "False WriteKeyNotDeployed"},
		{"aescbc to KMS, all", withKeys("2"), nil, plugins("2"), 3, []operatorcr.Report{report("a", "2"), report("b", "2"), report("c", "2")}, "True AsExpected"},
		{"a new key, 1 of 3: the others read it", withKeys("2", "1"), plugins("1", "2"), plugins("2", "1"), 1,
			[]operatorcr.Report{report("a", "2", "1"), report("b", "1", "2"), report("c", "1", "2")}, "False WriteKeyNotDeployed"},
		{"a new key, all", withKeys("2", "1"), plugins("1", "2"), plugins("2", "1"), 3,
			[]operatorcr.Report{report("a", "2", "1"), report("b", "2", "1"), report("c", "2", "1")}, "True AsExpected"},
		{"KMS being turned off, 1 of 3", withKeys("2").but(func(t *delivery.Published) { t.State.Live = reading }), plugins("2"), reading, 1,
			[]operatorcr.Report{report("a", "2"), report("b", "2"), report("c", "2")}, "Unknown NoWriteKey"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := tt.target.but(func(t *delivery.Published) {
				t.State.Revisions = map[string][]v1alpha1.Plugin{"7": tt.before, "8": tt.after}
			})
			var pods []*corev1.Pod
			for i, name := range []string{"a", "b", "c"} {
				pods = append(pods, pod(name, revision(7)))
				if i < tt.rolled {
					pods[i] = pod(name, revision(8))
				}
			}
			in := rollup.Input{Now: now, Reports: tt.reports, Nodes: expect(&target.Published, "kms-health", pods, nil, nodes, now), WriteKey: writeKey(target.State.Live)}
			in.NoWriteKey = in.WriteKey == ""
			got := rollup.Evaluate(&in)
			if c := got.Condition(rollup.WriteKeyAgreed); c.Status+" "+c.Reason != tt.want {
				t.Errorf("%+v, want %s", c, tt.want)
			}
			for _, kind := range []string{rollup.Degraded, rollup.Observed} {
				if c := got.Condition(kind); c.Reason != rollup.AsExpected {
					t.Errorf("%+v", c)
				}
			}
			for _, row := range got.Rows {
				if row.State == rollup.Missing {
					t.Errorf("missing: %+v", row)
				}
			}
		})
	}
}
