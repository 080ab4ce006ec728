// Package rollup combines the reports of all nodes on their KMS plugins into one verdict.
//
// Evaluate returns the conditions for the reports on an operator resource and the expected nodes, and
// when they change without another write: reports become rows (state.go), these and what the nodes'
// containers show become findings, and the most severe finding is the condition's reason.
//
// The package is pure: it uses no clock and no API server.
package rollup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Types are those of the conditions. A StatusSyncer aggregates the first by its suffix.
var Types = []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}

// Result is the result of Evaluate.
type Result struct {
	Conditions map[string]operatorstatus.Condition // by type
	// Rows are the plugins of all nodes that report or should report, by node, the write key first on each.
	Rows []Row
	// Findings are why conditions are as they are, by the type of the condition: those of
	// its status, without a silence that is excused, and what is under way.
	Findings map[string][]Finding
	// KeyID is the key that all API servers write with, and KEKID the one behind it; empty unless
	// KMSWriteKeyAgreed is True.
	KeyID, KEKID string
	// Deadline is when the result may change without another write; zero: never.
	Deadline time.Time
}

// Same reports whether the current conditions are exactly those of the result.
func (r *Result) Same(current map[string]operatorstatus.Condition) bool {
	return !slices.ContainsFunc(Types, func(t string) bool { return current[t] != r.Conditions[t] })
}

// evaluation is the state shared by the conditions.
type evaluation struct {
	*Input
	result *Result
	// Of the nodes that should report: how many there are, how many are excused, and what is found about
	// plugins and about reports.
	expected, excused  int
	onPlugins, onNodes []Finding
}

// Evaluate computes the roll-up. The order of reports and nodes does not matter.
func Evaluate(in *Input) *Result {
	result := &Result{Conditions: map[string]operatorstatus.Condition{}, Findings: map[string][]Finding{}}
	e := evaluation{Input: in, result: result}
	if in.Off || in.Unobserved {
		e.ofDelivery()
		return result
	}
	reported, nodes := map[string][]*operatorstatus.Report{}, map[string]*Node{}
	for i := range in.Nodes {
		nodes[in.Nodes[i].Name], reported[in.Nodes[i].Name] = &in.Nodes[i], nil
	}
	for i := range in.Reports {
		reported[in.Reports[i].Node] = append(reported[in.Reports[i].Node], &in.Reports[i])
	}
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		n := nodes[name]
		rows := e.rows(reported[name], n)
		result.Rows = append(result.Rows, rows...)
		if n != nil && (n.Keys == nil || len(n.Keys) > 0) {
			e.expected++
			e.lookAgain(n.QuietUntil)
			e.node(n, rows)
		}
	}
	e.set(e.degraded())
	e.set(e.reporting())
	e.set(e.writeKeyAgreed())
	return result
}

func (e *evaluation) set(c operatorstatus.Condition) {
	c.Settle(e.Previous, e.Now)
	e.result.Conditions[c.Type] = c
}

func (e *evaluation) lookAgain(at time.Time) {
	if at.After(e.Now) && (e.result.Deadline.IsZero() || at.Before(e.result.Deadline)) {
		e.result.Deadline = at
	}
}

// node adds the findings of a node that should report.
func (e *evaluation) node(n *Node, rows []Row) {
	reports := slices.ContainsFunc(rows, func(r Row) bool { return !r.Silent() })
	var others []string
	excused, complete := false, len(rows) > 0
	for i := range rows {
		row := &rows[i]
		if row.Unexpected {
			others = append(others, keyName(row.KeyID))
			continue
		}
		complete = complete && row.State.known()
		plugin, report := e.onPlugin(n, row), e.onReport(n, row, reports)
		if report.Reason != "" {
			e.onNodes = append(e.onNodes, report)
		}
		switch {
		case plugin.Excused, plugin.Reason == "" && report.Excused:
			excused = true
		case plugin.Reason != "":
			e.onPlugins = append(e.onPlugins, plugin)
		case report.Reason != "":
			e.onPlugins = append(e.onPlugins, report)
		}
	}
	if excused {
		e.excused++
	}
	if len(others) > 0 {
		e.onNodes = append(e.onNodes, Finding{Reason: contract.OtherPlugins, Node: n.Name,
			Text: "reports on keys that its pod does not have: " + contract.Cut(strings.Join(others, ", "), maxDetail)})
	}
	for _, f := range n.Faults {
		ofReporter := f.Reason == contract.ReporterNotRunning
		if ofReporter {
			e.onNodes = append(e.onNodes, f)
		}
		if !ofReporter || !complete { // one that crashes, and still reports, prevents no verdict
			e.onPlugins = append(e.onPlugins, f)
		}
	}
}

// excuses reports whether missing reports of a node are not its reporter's failure.
func (e *evaluation) excuses(n *Node) bool { return !n.Ready || e.Now.Before(n.QuietUntil) }

// onPlugin is the finding of a plugin that is unhealthy, or was by the last report of a node that cannot
// report. Without a Reason: none. It is Excused where the plugin stops before its API server, or
// starts after it.
func (e *evaluation) onPlugin(n *Node, row *Row) (f Finding) {
	excuse := e.excuses(n)
	last := row.State == Stale && excuse && !n.Unattended && State(row.Status).Unhealthy()
	if !last && !row.State.Unhealthy() {
		return f
	}
	f = Finding{Node: n.Name, Key: row.KeyID, Detail: row.Detail, Look: n.Look[row.KeyID],
		Excused: excuse && row.Reason == contract.SocketMissing}
	f.Reason, f.Text = contract.PluginError, "error"
	if row.Status == contract.Unhealthy {
		f.Reason, f.Text = contract.PluginUnhealthy, "unhealthy"
	}
	return f
}

// onReport is the finding of a report that is missing, stale or unreadable. Without a Reason: none. If the
// node reports on other plugins, it is about one key, otherwise about the whole node.
func (e *evaluation) onReport(n *Node, row *Row, reports bool) (f Finding) {
	f.Node, f.Excused = n.Name, e.excuses(n)
	if reports {
		f.Key = row.KeyID
	}
	switch {
	case row.Silent() && n.Unattended:
		return Finding{Reason: contract.Unmanaged, Node: n.Name, Excused: true,
			Text: "has no reporter, and managementState is Unmanaged"}
	case row.State == Missing && e.Now.Before(n.Due[row.KeyID]):
		e.lookAgain(n.Due[row.KeyID])
		f.Reason, f.Text, f.Excused = contract.Progressing, notReported, false
		return f
	case row.State == Missing:
		// A start of the API server excuses nothing here: that is in when the report is due, and one that
		// is restarted again and again would be excused for ever.
		f.Reason, f.Text, f.Excused = contract.ReportsMissing, notReported, !n.Ready
	case row.State == Stale && reports:
		f.Reason, f.Text = contract.ReporterStale, noLonger
	case row.State == Stale:
		f.Reason, f.Text = contract.ReporterStale, silent
	case row.State == Unreadable:
		f.Reason, f.Text, f.Detail, f.Key = contract.ReportUnreadable, notReadable, row.Detail, ""
	default:
		return Finding{}
	}
	switch {
	case !f.Excused:
		f.Look = n.Look[""]
	case n.Ready:
		f.Text += "; its API server is being replaced"
	default:
		f.Text += "; the Node is not Ready"
	}
	return f
}

// degraded is the condition Degraded: whether a plugin is unhealthy. A plugin known to be
// unhealthy outweighs one whose state is unknown.
func (e *evaluation) degraded() operatorstatus.Condition {
	c := operatorstatus.Condition{Type: contract.PluginsDegraded, Status: operatorstatus.False, Reason: contract.AsExpected}
	found := slices.Concat(e.NotObserved, e.onPlugins)
	switch {
	case len(found) > 0:
		c.Status = e.describe(&c, found).Degraded
	case len(e.Nodes) == 0:
		c.Reason, c.Message = contract.NoPods, noPods
	case e.expected == 0:
		c.Reason, c.Message = contract.NoPlugins, noPlugins
	default:
		c.Message = fmt.Sprintf("every plugin is healthy on %d of %d nodes", e.expected-e.excused, e.expected)
		if e.excused > 0 {
			c.Message += "; the others are being replaced, are not Ready, or have no reporter"
		}
	}
	return c
}

const (
	noPods    = "no pod of the API server runs on a node"
	noPlugins = "no pod of the API server has a KMS plugin"
)

// reporting is the condition Reporting: whether every node that should report does, on the
// plugins of its pod, and what prevents it.
func (e *evaluation) reporting() operatorstatus.Condition {
	c := operatorstatus.Condition{Type: contract.HealthReporting}
	found, mode := e.deliveryFindings()
	for _, f := range e.onNodes {
		if !e.Alone || f.Reason == contract.ReporterNotRunning {
			found = append(found, f)
		}
	}
	switch {
	case len(found) > 0:
		e.describe(&c, found)
	case len(e.Nodes) == 0 || e.Alone:
		c.Reason, c.Message = contract.NoPods, noPods
	case e.expected == 0:
		c.Reason, c.Message = contract.NoPlugins, noPlugins
	default:
		c.Reason, c.Message = contract.AsExpected, fmt.Sprintf("%d of %d nodes report", e.expected, e.expected)
	}
	c.Status = contract.RollupReasonOf(c.Reason).Reporting
	c.Message += mode
	return c
}

// ofDelivery sets the conditions where no node is evaluated: Reporting by what prevents or delays the
// delivery, and those that stay.
func (e *evaluation) ofDelivery() {
	for _, kind := range Types {
		if c, stays := e.Previous[kind]; stays && !e.Off {
			e.result.Conditions[kind] = c
		}
	}
	if found, _ := e.deliveryFindings(); e.Delivery.Reason != "" && len(found) > 0 {
		c := operatorstatus.Condition{Type: contract.HealthReporting}
		c.Status = e.describe(&c, found).Reporting
		e.set(c)
	}
}

// deliveryFindings returns problems and progress of the delivery, or, if there are none, one line on the mode. Progress
// without a change for a FirstReport is a problem. After a restart the previous finding is kept until the state is
// known.
func (e *evaluation) deliveryFindings() (found []Finding, mode string) {
	f, was := Finding{Reason: e.Delivery.Reason, Text: e.Delivery.Message}, e.Previous[contract.HealthReporting]
	switch f.Reason {
	case "":
		// Containers are seen at once, and the problem of a delivery is one line.
		if was.Reason == "" || was.Reason == contract.ReporterNotRunning || !contract.RollupReasonOf(was.Reason).NeedsAction {
			return nil, ""
		}
		f.Reason = was.Reason
		f.Text, _, _ = strings.Cut(was.Message, "\n")
	case contract.Off, contract.Removed:
		return nil, ""
	case contract.AsExpected, contract.Unmanaged, contract.NoPods:
		return nil, "\n" + f.Text
	}
	if contract.RollupReasonOf(f.Reason).UnderWay {
		due := e.Delivery.Since.Add(FirstReport)
		early := was.Reason == contract.ProgressDeadlineExceeded && e.Now.Before(e.Began.Add(FirstReport))
		if early || !e.Now.Before(due) {
			f.Reason = contract.ProgressDeadlineExceeded
		}
		e.lookAgain(due)
	}
	return []Finding{f}, ""
}
