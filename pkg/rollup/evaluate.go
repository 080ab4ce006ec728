// Package rollup combines the reports of all nodes on their KMS plugins into one verdict. Reports become rows
// (state.go), these and what the nodes' containers show become findings, and the most severe finding is the condition's
// reason.
//
// The package is pure: it uses no clock and no API server. Age is what the process saw (seen.go), never a time that
// another machine wrote.
package rollup

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Types are the types of the conditions. A StatusSyncer aggregates the first because of its suffix.
var Types = []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}

// Result is the result of Evaluate.
type Result struct {
	Conditions map[string]operatorstatus.Condition // by type
	// Rows are the plugins of all nodes that report or should report, by node, the write key first on each.
	Rows []Row
	// Findings are the reasons of each condition, by its type, without excused ones and those that ask for nothing.
	Findings  map[string][]Finding
	Agreement Agreement // for the next Input
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
	// Of the nodes that should report: how many there are, and the findings on plugins and on reports.
	expected           int
	onPlugins, onNodes []Finding
	// excused means that a silence, or a missing socket, is excused.
	excused bool
	// standing has a finding for each row that shows no fault and has not changed since this process began.
	standing []Finding
}

// Evaluate computes the roll-up. The order of reports and nodes does not matter.
func Evaluate(in *Input) *Result {
	result := &Result{Conditions: map[string]operatorstatus.Condition{}, Findings: map[string][]Finding{}}
	e := evaluation{Input: in, result: result}
	if in.Off || in.Unobserved {
		e.ofDelivery()
		return result
	}
	reported, nodes := map[string][]*Report{}, map[string]*Node{}
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
		if n != nil && n.expected() {
			e.expected++
			e.node(n, rows)
		}
	}
	awaited := slices.ContainsFunc(e.onPlugins, func(f Finding) bool { // by a pod that an earlier process saw
		return f.Reason == contract.Progressing && nodes[f.Node].PodSeen.IsZero()
	})
	e.set(e.degraded(), len(e.standing) > 0 || awaited && e.before(in.Stood))
	e.set(e.reporting())
	e.set(e.writeKeyAgreed(), false)
	result.Agreement.Evaluated = true
	return result
}

// worse orders the statuses of KMSPluginsDegraded.
var worse = map[string]int{operatorstatus.Unknown: 1, operatorstatus.True: 2}

// set sets a condition. standing means that a part of it is known from an earlier process alone. The previous condition
// then stays, unless c is a worse KMSPluginsDegraded.
func (e *evaluation) set(c operatorstatus.Condition, standing bool) {
	was, had := e.Previous[c.Type]
	if standing && had && (c.Type == contract.HealthReporting || worse[was.Status] >= worse[c.Status]) {
		e.result.Conditions[c.Type] = was
		return
	}
	c.Settle(e.Previous, e.Wall)
	e.result.Conditions[c.Type] = c
}

// before reports whether at is later than now. If so, the result may change at that time: see Deadline.
func (e *evaluation) before(at time.Time) bool {
	if !e.Now.Before(at) {
		return false
	}
	if e.result.Deadline.IsZero() || at.Before(e.result.Deadline) {
		e.result.Deadline = at
	}
	return true
}

// node adds the findings of a node that should report.
func (e *evaluation) node(n *Node, rows []Row) {
	reports := slices.ContainsFunc(rows, func(r Row) bool { return !r.Silent() })
	for i := range rows {
		row := &rows[i]
		plugin, report := e.onPlugin(n, row), e.onReport(n, row, reports)
		if row.Standing && !row.Silent() && (plugin.Reason == "" || plugin.Excused) {
			e.standing = append(e.standing, Finding{Reason: contract.Progressing, Node: n.Name, Text: notConfirmed})
		}
		if report.Reason != "" {
			e.onNodes = append(e.onNodes, report)
		}
		switch {
		case plugin.Excused, plugin.Reason == "" && report.Excused:
			e.excused = true
		case plugin.Reason != "":
			e.onPlugins = append(e.onPlugins, plugin)
		case report.Reason != "":
			e.onPlugins = append(e.onPlugins, report)
		}
	}
	if len(n.Pods) > 1 && !e.before(n.PodsDue) {
		e.onNodes = append(e.onNodes, n.severalPods())
	}
	for _, f := range n.Faults {
		if f.Reason == contract.ReporterNotRunning { // a reporter's failure is not the plugin's
			e.onNodes = append(e.onNodes, f)
		} else {
			e.onPlugins = append(e.onPlugins, f)
		}
	}
}

func (n *Node) severalPods() Finding {
	return Finding{Reason: contract.SeveralPods, Node: n.Name,
		Text: "has several API server pods, and its report is about one of them: " + strings.Join(n.Pods, ", ")}
}

// excuse returns why a missing, stale or unreadable report is not the reporter's failure; empty if it is one by now.
func (e *evaluation) excuse(n *Node, row *Row) string {
	switch {
	case e.before(n.DownUntil):
		return "the Node is not Ready"
	case row.State == Missing, row.State == Stale && !e.before(row.FreshUntil().Add(MaxExcuse)):
		// A start of the API server excuses no missing report. The time when it is due includes that start, and an API
		// server that restarts again and again would be excused for ever.
		return ""
	case e.before(n.QuietUntil):
		return "its API server is being replaced"
	}
	return ""
}

// onPlugin returns the finding about a plugin that is unhealthy, or was so in a node's last report; else one without a
// Reason. It is Excused while the plugin may stop before its API server, or start after it.
func (e *evaluation) onPlugin(n *Node, row *Row) (f Finding) {
	last := row.State == Stale && !n.Unattended && State(row.Status).Unhealthy()
	if !last && !row.State.Unhealthy() {
		return f
	}
	f = Finding{Node: n.Name, Key: row.KeyID, Detail: row.Detail}
	f.Reason, f.Text = contract.PluginError, "error"
	if row.Status == contract.Unhealthy {
		f.Reason, f.Text = contract.PluginUnhealthy, "unhealthy"
	}
	if row.Reason == contract.SocketMissing {
		f.Excused = e.before(n.DownUntil) || e.before(n.QuietUntil)
		if (last || row.Standing) && !n.Ready && !f.Excused { // it ended with its node
			return Finding{}
		}
	}
	if last {
		f.Text += ", and " + silent
	}
	return f
}

// onReport returns the finding about a report that is missing, stale or unreadable; otherwise one without a Reason.
// If the node reports on other plugins, it is about one key, otherwise about the whole node.
func (e *evaluation) onReport(n *Node, row *Row, reports bool) (f Finding) {
	f.Node = n.Name
	if reports {
		f.Key = row.KeyID
	}
	switch {
	case row.Silent() && n.Unattended:
		return Finding{Reason: contract.Unmanaged, Node: n.Name, Excused: true,
			Text: "has no reporter, and managementState is Unmanaged"}
	case row.State == Missing && e.before(n.Due):
		f.Reason, f.Text = contract.Progressing, notReported
		return f
	case row.State == Missing:
		f.Reason, f.Text = contract.ReportsMissing, notReported
	case row.State == Stale:
		f.Reason, f.Text = contract.ReporterStale, silent
	case row.State == Unreadable:
		f.Reason, f.Text, f.Detail, f.Key = contract.ReportUnreadable, notReadable, row.Detail, ""
	default:
		return Finding{}
	}
	if why := e.excuse(n, row); why != "" {
		f.Text, f.Excused = f.Text+"; "+why, true
	}
	return f
}

// degraded is KMSPluginsDegraded. A plugin known to be unhealthy outweighs one whose state is unknown.
func (e *evaluation) degraded() operatorstatus.Condition {
	c := operatorstatus.Condition{Type: contract.PluginsDegraded}
	found := slices.Concat(e.NotObserved, e.onPlugins)
	if len(found) == 0 {
		found = e.standing
	}
	if len(found) == 0 {
		healthy := ofNodes(e.expected, "every plugin is healthy on 1 node", "every plugin is healthy on %d nodes")
		if e.excused {
			healthy += ", except where a node is being replaced, is not Ready, or cannot report"
		}
		found = e.asExpected(healthy)
	}
	c.Status = e.describe(&c, found).Degraded
	return c
}

// asExpected returns the finding where there is no other one: text, if a node should report.
func (e *evaluation) asExpected(text string) []Finding {
	switch {
	case len(e.Nodes) == 0:
		return []Finding{{Reason: contract.NoPods, Text: "no pod of the API server runs on a node"}}
	case e.expected == 0:
		return []Finding{{Reason: contract.NoPlugins, Text: "no pod of the API server has a KMS plugin"}}
	}
	return []Finding{{Reason: contract.AsExpected, Text: text}}
}

// reporting is KMSHealthReporting: Unknown if nothing prevents reports, but they are under way or excused. stands means
// that the previous condition stays: nothing new is known, or whether its problem of the delivery is over is not.
func (e *evaluation) reporting() (c operatorstatus.Condition, stands bool) {
	c.Type = contract.HealthReporting
	was := contract.RollupReasonOf(e.Previous[c.Type].Reason)
	found, mode := e.deliveryFindings()
	found = append(found, e.onNodes...)
	if e.Owner != "" {
		owner := contract.Cut(contract.CleanDetail(e.Owner), maxDetail)
		found = append(found, Finding{Reason: contract.OtherOwner,
			Text: "field manager " + owner + " owns " + contract.PluginsDegraded})
	}
	if len(found) == 0 && len(e.standing) > 0 {
		found, stands = e.standing, !was.NeedsAction
	}
	if len(found) == 0 {
		found = e.asExpected(ofNodes(e.expected, "1 node reports", "%d nodes report"))
	}
	c.Status = e.describe(&c, found).Reporting
	prevents := func(f Finding) bool { return !f.Excused && contract.RollupReasonOf(f.Reason).Reporting == c.Status }
	if c.Status == operatorstatus.False && !slices.ContainsFunc(found, prevents) {
		c.Status = operatorstatus.Unknown
	}
	c.Message += mode
	return c, stands || e.Delivery.Reason == "" && was.NeedsAction
}

// ofDelivery sets the conditions if no node is evaluated: KMSHealthReporting to what prevents or delays
// the delivery. Unless Off, the others stay.
func (e *evaluation) ofDelivery() {
	for _, kind := range Types {
		if c, stays := e.Previous[kind]; stays && !e.Off {
			e.result.Conditions[kind] = c
		}
	}
	if found, _ := e.deliveryFindings(); len(found) > 0 {
		c := operatorstatus.Condition{Type: contract.HealthReporting}
		c.Status = e.describe(&c, found).Reporting
		e.set(c, false)
	}
}

// deliveryFindings returns problems and progress of the delivery; without any, one line on the mode. Progress without a
// change for a FirstReport is a problem.
func (e *evaluation) deliveryFindings() (found []Finding, mode string) {
	f := Finding{Reason: e.Delivery.Reason, Text: e.Delivery.Message}
	switch f.Reason {
	case "", contract.Off, contract.Removed:
		return nil, ""
	case contract.AsExpected, contract.Unmanaged, contract.NoPods:
		return nil, "\n" + f.Text
	}
	if contract.RollupReasonOf(f.Reason).UnderWay {
		due := e.Delivery.Since.Add(FirstReport)
		for i := range e.Nodes { // on one that is not Ready no kubelet starts or ends a pod
			due = Latest(due, e.Nodes[i].QuietUntil, e.Nodes[i].DownUntil)
		}
		if !e.before(due) {
			f.Reason = contract.ProgressDeadlineExceeded
		}
	}
	return []Finding{f}, ""
}
