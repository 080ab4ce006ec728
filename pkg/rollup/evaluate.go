package rollup

import (
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Result is the result of Evaluate.
type Result struct {
	// Conditions are those to write to the resource, in a fixed order.
	Conditions []operatorcr.Condition
	// Rows are the states that they are derived from.
	Rows []Row
	// Findings are why conditions are as they are, by the type of the condition: those of
	// its status, without a silence that is excused, and what is under way.
	Findings map[string][]Finding
	// Agreement is what KMSWriteKeyAgreed is derived from.
	Agreement Agreement
	// Deadline is when the result may change without another write; zero: never.
	Deadline time.Time
}

// Condition returns one of the conditions.
func (r *Result) Condition(conditionType string) operatorcr.Condition {
	i := slices.IndexFunc(r.Conditions, func(c operatorcr.Condition) bool { return c.Type == conditionType })
	if i < 0 {
		return operatorcr.Condition{}
	}
	return r.Conditions[i]
}

// Same reports whether the roll-up's current conditions are exactly those of the result.
func (r *Result) Same(standing map[string]operatorcr.Condition) bool {
	return !slices.ContainsFunc(Types, func(t string) bool { return standing[t] != r.Condition(t) })
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
	for start := 0; start < len(e.rows); {
		end := start
		for end < len(e.rows) && e.rows[end].Node == e.rows[start].Node {
			end++
		}
		e.byNode[e.rows[start].Node] = e.rows[start:end]
		start = end
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.withoutPlugins() {
			continue
		}
		e.nodes = append(e.nodes, n)
		e.lookAgain(n.QuietUntil)
		for _, f := range n.Faults {
			e.lookAgain(f.Until)
		}
	}
	slices.SortFunc(e.nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })

	servers, others := in.Nodes, in.Others
	if in.Alone {
		servers, others = nil, nil
	}
	agreement := Agree(e.rows, servers, others, in.WriteKey, in.Now)
	result := &Result{Rows: e.rows, Findings: e.found, Agreement: agreement,
		Conditions: []operatorcr.Condition{e.degraded(), e.reporting(), e.writeKeyAgreed(&agreement)}}
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
