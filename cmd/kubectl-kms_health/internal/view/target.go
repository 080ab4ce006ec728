package view

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// FormOutput is the form of what a reporter's --output wrote: it is on no
// resource.
const FormOutput operatorcr.Form = "Output"

// Target is one API server's operator resource, as far as it matters here.
type Target struct {
	Name     string // the resource, as in kubeapiservers; empty while it is not known
	Resource *operatorcr.Status
}

// Read takes an operator resource apart.
func Read(name string, o *unstructured.Unstructured) Target {
	return Target{Name: name, Resource: operatorcr.Read(o)}
}

// Output is a target of which one reporter's output is all that is known.
func Output(name, node string, entries []health.Entry) Target {
	return Target{Name: name, Resource: &operatorcr.Status{
		Reports: []operatorcr.Report{{Node: node, Form: FormOutput, Entries: entries}},
	}}
}

// IsOutput means that it is what Output made.
func (t Target) IsOutput() bool {
	return slices.ContainsFunc(t.Resource.Reports, func(r operatorcr.Report) bool { return r.Form == FormOutput })
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

// rolledUp means that an operator expects reports on the target.
func (t Target) rolledUp() bool {
	observed, is := t.Resource.Conditions[rollup.Observed]
	_, degraded := t.Resource.Conditions[rollup.Degraded]
	return (is || degraded) && observed.Reason != rollup.NoPlugins
}

// expected are the nodes that are known to have to report: those that report on no
// plugin; and, where anything is reported or an operator expects it, those that the
// API server runs on.
func (t Target) expected() []rollup.Node {
	var names []string
	for _, r := range t.Resource.Reports {
		if r.Err == nil && len(r.Entries) == 0 {
			names = append(names, r.Node)
		}
	}
	if len(t.Resource.Reports) > 0 || t.rolledUp() {
		for _, n := range t.Resource.Nodes {
			names = append(names, n.Name)
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
func (t Target) origin(row *rollup.Row) (operatorcr.Report, bool) {
	var found []operatorcr.Report
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
		return operatorcr.Report{}, false
	}
	// Both forms say the same: the one that says how often comes first.
	slices.SortStableFunc(found, func(a, b operatorcr.Report) int { return cmp.Compare(a.Form, b.Form) })
	return found[0], true
}
