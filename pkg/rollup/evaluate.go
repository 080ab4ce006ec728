// Package rollup combines the reports of all nodes on their KMS plugins into one verdict.
//
// Evaluate returns the conditions for the reports on an operator resource and the expected nodes, and
// when they change without another write. Leftovers returns the reports that will not be written again.
//
// The package is pure: it uses no clock and no API server.
package rollup

import (
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Types are those of the conditions. A StatusSyncer aggregates the first by its suffix.
var Types = []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}

// Result is the result of Evaluate.
type Result struct {
	Conditions []operatorcr.Condition // in a fixed order
	Rows       []Row                  // that they are derived from
	// Findings are why conditions are as they are, by the type of the condition: those of
	// its status, without a silence that is excused, and what is under way.
	Findings map[string][]Finding
	// KeyID is the key that all API servers write with, and KEKID the one behind it; empty unless
	// KMSWriteKeyAgreed is True.
	KeyID, KEKID string
	// Deadline is when the result may change without another write; zero: never.
	Deadline time.Time
}

// Condition returns one of them; the zero one: there is none.
func (r *Result) Condition(conditionType string) operatorcr.Condition {
	for _, c := range r.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return operatorcr.Condition{}
}

// Same reports whether the current conditions are exactly those of the result.
func (r *Result) Same(current map[string]operatorcr.Condition) bool {
	return !slices.ContainsFunc(Types, func(t string) bool { return current[t] != r.Condition(t) })
}

// evaluation is the state shared by the conditions.
type evaluation struct {
	*Input
	rows   []Row
	found  map[string][]Finding // by condition
	byNode map[string][]Row
	nodes  []*Node // those that should report, by name
	again  time.Time
}

// Evaluate computes the roll-up. The order of reports and nodes does not matter.
func Evaluate(in *Input) *Result {
	e := evaluation{Input: in, found: map[string][]Finding{}, byNode: make(map[string][]Row, len(in.Nodes))}
	e.rows, e.again = Rows(in.Reports, in.Nodes, in.Now)
	for _, row := range e.rows {
		e.byNode[row.Node] = append(e.byNode[row.Node], row)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.withoutPlugins() {
			continue
		}
		e.nodes = append(e.nodes, n)
		e.lookAgain(n.QuietUntil)
	}
	slices.SortFunc(e.nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })

	result := &Result{Rows: e.rows, Findings: e.found}
	agreed := e.writeKeyAgreed(result)
	result.Conditions = []operatorcr.Condition{e.degraded(), e.reporting(), agreed}
	for i := range result.Conditions {
		result.Conditions[i].Settle(in.Previous, in.Now)
	}
	result.Deadline = e.again
	return result
}

func (e *evaluation) lookAgain(at time.Time) {
	if at.After(e.Now) {
		e.again = earliest(e.again, at)
	}
}
