package view

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// FormOutput is the form of what a reporter's --output wrote: it is on no
// resource.
const FormOutput rollup.Form = "Output"

// Target is one API server's operator resource, as far as it matters here.
type Target struct {
	Name     string // the resource, as in kubeapiservers; empty while it is not known
	Resource *rollup.Resource
	// nodes are those that the resource itself says the API server runs on.
	nodes []string
}

// Read takes an operator resource apart.
func Read(name string, o *unstructured.Unstructured) Target {
	t := Target{Name: name, Resource: rollup.Read(o)}
	// OpenShift's operators of static pods keep a list of the nodes they run them on.
	statuses, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "nodeStatuses")
	list, _ := statuses.([]any)
	for _, s := range list {
		fields, _ := s.(map[string]any)
		if node, _ := fields["nodeName"].(string); node != "" {
			t.nodes = append(t.nodes, node)
		}
	}
	return t
}

// Output is a target of which one reporter's output is all that is known.
func Output(name, node string, entries []health.Entry) Target {
	return Target{Name: name, Resource: &rollup.Resource{
		Reports: []rollup.Report{{Node: node, Form: FormOutput, Entries: entries}},
	}}
}

// IsOutput says that it is what Output made.
func (t Target) IsOutput() bool {
	return slices.ContainsFunc(t.Resource.Reports, func(r rollup.Report) bool { return r.Form == FormOutput })
}

// Newest is when the newest of the target's reports was made: by the API server's
// clock where that is known, since a node's own may be ahead. Zero: there is none.
func (t Target) Newest() time.Time {
	var newest time.Time
	for _, r := range t.Resource.Reports {
		at := r.Written
		if at.IsZero() {
			at = newestEntry(r.Entries)
		}
		if at.After(newest) {
			newest = at
		}
	}
	return newest
}

func newestEntry(entries []health.Entry) time.Time {
	if len(entries) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(entries, func(a, b health.Entry) int { return a.LastChecked.Compare(b.LastChecked) }).LastChecked
}

// rolledUp says that an operator has given its verdict of the target.
func (t Target) rolledUp() bool {
	_, observed := t.Resource.Conditions[rollup.Observed]
	_, degraded := t.Resource.Conditions[rollup.Degraded]
	return observed || degraded
}

// expected are the nodes that are known to have to report: those that do, and say
// nothing; and, where anybody speaks of KMS at all, those that the API server runs
// on and those that the operator misses. One that has reported since is no longer
// missing, so an operator that is down misleads nobody.
func (t Target) expected() []rollup.Node {
	var names []string
	for _, r := range t.Resource.Reports {
		if r.Err == nil && len(r.Entries) == 0 {
			names = append(names, r.Node)
		}
	}
	if len(t.Resource.Reports) > 0 || t.rolledUp() {
		names = append(names, t.nodes...)
		for _, l := range lines(t.Resource.Conditions[rollup.Observed].Message) {
			if l.missing {
				names = append(names, l.nodes...)
			}
		}
	}
	slices.Sort(names)
	nodes := make([]rollup.Node, 0, len(names))
	for _, name := range slices.Compact(names) {
		nodes = append(nodes, rollup.Node{Name: name})
	}
	return nodes
}

// origin is the report that a row was made of.
func (t Target) origin(row *rollup.Row) (rollup.Report, bool) {
	var found []rollup.Report
	for _, r := range t.Resource.Reports {
		if r.Node != row.Node {
			continue
		}
		unreadable := row.State == rollup.Unreadable && r.Err != nil && health.CleanDetail(r.Err.Error()) == row.Detail
		if unreadable || slices.ContainsFunc(r.Entries, func(e health.Entry) bool { return e == row.Entry }) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return rollup.Report{}, false
	}
	// Both forms say the same: the one that says how often comes first.
	slices.SortStableFunc(found, func(a, b rollup.Report) int { return cmp.Compare(a.Form, b.Form) })
	return found[0], true
}
