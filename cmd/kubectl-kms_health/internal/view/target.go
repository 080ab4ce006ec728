package view

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// FormOutput is the form of a reporter's --output, which is on no resource.
const FormOutput operatorcr.Form = "Output"

// Target is the relevant part of one API server's operator resource.
type Target struct {
	Name     string // the resource, as in kubeapiservers; empty while it is not known
	Resource *operatorcr.Status
	// Rotation are the conditions of OpenShift's key rotation, in a fixed order.
	Rotation []operatorcr.Condition
}

// rotation are the types of the conditions that OpenShift's own controllers of key rotation
// write.
var rotation = []string{"KmsHealthReportsProgressing", "KmsHealthReportsDegraded"}

// Read decodes an operator resource.
func Read(name string, o *unstructured.Unstructured) Target {
	t := Target{Name: name, Resource: operatorcr.Read(o)}
	all := operatorcr.ReadConditions(o)
	for _, conditionType := range rotation {
		if c, stands := all[conditionType]; stands {
			t.Rotation = append(t.Rotation, c)
		}
	}
	return t
}

// Output is a target that consists of one reporter's output.
func Output(name, node string, entries []contract.Entry) Target {
	return Target{Name: name, Resource: &operatorcr.Status{
		Reports: []operatorcr.Report{{Node: node, Form: FormOutput, Entries: entries}},
	}}
}

// IsOutput reports whether it was made by Output.
func (t Target) IsOutput() bool {
	return slices.ContainsFunc(t.Resource.Reports, func(r operatorcr.Report) bool { return r.Form == FormOutput })
}

// Newest is the time of the target's newest report: by the API server's clock if known,
// since a node's clock may be ahead. Zero: there is none.
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

func newestEntry(entries []contract.Entry) time.Time {
	if len(entries) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(entries, func(a, b contract.Entry) int { return a.LastChecked.Compare(b.LastChecked) }).LastChecked
}

// rolledUp reports whether an operator expects reports on the target.
func (t Target) rolledUp() bool {
	reporting, is := t.Resource.Conditions[contract.HealthReporting]
	_, degraded := t.Resource.Conditions[contract.PluginsDegraded]
	return (is || degraded) && reporting.Reason != contract.NoPlugins
}

// misses reports whether the operator misses the report of a node. A more severe reason of
// KMSHealthReporting may hide that, and then KMSPluginsDegraded shows it.
func (t Target) misses() bool {
	unreported := []string{contract.AwaitingReports, contract.ReportsMissing, contract.Progressing, contract.Unmanaged}
	return slices.Contains(unreported, t.Resource.Conditions[contract.HealthReporting].Reason) ||
		slices.Contains(unreported, t.Resource.Conditions[contract.PluginsDegraded].Reason)
}

// expected are the nodes that should report: those that report on no plugin; and, if
// anything is reported or an operator expects it, those that the API server runs on.
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

// origin is the report of a row.
func (t Target) origin(row *rollup.Row) (operatorcr.Report, bool) {
	var found []operatorcr.Report
	for _, r := range t.Resource.Reports {
		if r.Node != row.Node {
			continue
		}
		unreadable := row.State == rollup.Unreadable && r.Err != nil && contract.CleanDetail(r.Err.Error()) == row.Detail
		if unreadable || slices.ContainsFunc(r.Entries, func(e contract.Entry) bool { return e == row.Entry }) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return operatorcr.Report{}, false
	}
	// Both forms are equal: the one with an interval comes first.
	slices.SortStableFunc(found, func(a, b operatorcr.Report) int { return cmp.Compare(a.Form, b.Form) })
	return found[0], true
}
