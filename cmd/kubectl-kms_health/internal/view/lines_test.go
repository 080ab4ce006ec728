package view

import (
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// The messages are the roll-up's own, so that this fails when it comes to say them
// in another way.
func TestTheOperatorsMessagesAreUnderstood(t *testing.T) {
	node := func(name string) rollup.Node {
		return rollup.Node{Name: name, Ready: true, PodSince: now.Add(-time.Hour), Keys: []string{"2"}, Look: map[string]string{
			"2": "oc logs -n ns pod-" + name + " -c kms-2", "": "oc logs -n kms reporter-" + name,
		}}
	}
	ill := said("2", "k", health.Unhealthy, 5)
	ill.Detail = "sealed; see rm -rf /"
	result := rollup.Evaluate(&rollup.Input{
		Now:   now,
		Nodes: []rollup.Node{node("a"), node("b"), node("c"), node("d")},
		Reports: []rollup.Report{
			{Node: "a", Form: rollup.FormCondition, Entries: []health.Entry{ill}},
			{Node: "b", Form: rollup.FormCondition, Entries: []health.Entry{said("2", "k", health.Healthy, 5)}},
		},
	})
	var target TargetStatus
	var missing []string
	for _, c := range result.Conditions {
		target.Conditions = append(target.Conditions, Condition{Type: c.Type, Message: c.Message})
		if c.Type == rollup.Observed {
			for _, l := range lines(c.Message) {
				if l.missing {
					missing = append(missing, l.nodes...)
				}
			}
		}
	}
	if !slices.Equal(missing, []string{"c", "d"}) {
		t.Errorf("%q of %+v", missing, target.Conditions)
	}
	for _, tt := range []struct {
		node, key string
		want      []string
	}{
		{"a", "2", []string{"oc logs -n ns pod-a -c kms-2"}},
		{"a", "1", nil},
		{"b", "2", nil},
		{"c", "", []string{"oc logs -n kms reporter-c"}},
		{"d", "", nil}, // the command is the first one's
	} {
		if got := target.looks(tt.node, tt.key); !slices.Equal(got, tt.want) {
			t.Errorf("node %s, key %s: %q, want %q", tt.node, tt.key, got, tt.want)
		}
	}
	if c := (&Condition{Message: result.Condition(rollup.Observed).Message}); len(c.said("d")) != 1 || len(c.said("b")) != 0 {
		t.Errorf("%q, %q", c.said("d"), c.said("b"))
	}
	if c := (&Condition{Message: "all 4 nodes: not reported yet\nnode b: stopped reporting"}); len(c.said("a")) != 1 || len(c.said("b")) != 2 {
		t.Errorf("%q, %q", c.said("a"), c.said("b"))
	}
}

func TestOnlyCommandsThatLookAreHandedOn(t *testing.T) {
	for command, want := range map[string]bool{
		"oc logs -n openshift-kube-apiserver kube-apiserver-master-0 -c kms-2 --previous": true,
		"kubectl describe -n kms pod a.b.c":                                               true,
		"kubectl delete pod logs-0":                                                       false,
		"kubectl logs a; rm -rf /":                                                        false,
		"kubectl logs $(id)":                                                              false,
		"kubectl logs a\nrm b":                                                            false,
		"kubectl logs a | sh":                                                             false,
		"sh -c logs":                                                                      false,
		"kubectl":                                                                         false,
		"":                                                                                false,
		"kubectl exec -n a b -- get":                                                      false,
		"kubectl get secret a --raw=/x -o=yaml --v":                                       true,
	} {
		if got := harmless(command); got != want {
			t.Errorf("%q: %t", command, got)
		}
	}
}

func TestEveryStateHasAMeaningAndSomethingToDo(t *testing.T) {
	states := []rollup.State{rollup.Healthy, rollup.Unhealthy, rollup.Error, rollup.Stale, rollup.Skewed, rollup.Unreadable, rollup.Missing}
	said := map[string]bool{}
	for _, state := range states {
		p := Plugin{Node: "a", State: state}
		if m := meaning(&p); m == "" || said[m] {
			t.Errorf("%s: %q", state, m)
		} else {
			said[m] = true
		}
		if steps := next(&p, []string{"oc logs x"}); (len(steps) > 1) == (state == rollup.Healthy) {
			t.Errorf("%s: %+v", state, steps)
		}
	}
	// A node's name is chosen by whoever may write the status.
	for _, step := range next(&Plugin{Node: "a; rm", State: rollup.Stale}, nil) {
		if step.Command != "" && slices.Contains([]byte(step.Command), ';') {
			t.Error(step.Command)
		}
	}
}
