package rollup

import (
	"fmt"
	"slices"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// degraded is the condition Degraded: whether a plugin is unhealthy. A plugin known to be
// unhealthy outweighs one whose state is unknown.
func (e *evaluation) degraded() operatorcr.Condition {
	c := operatorcr.Condition{Type: Degraded, Status: operatorcr.False}
	if len(e.nodes) == 0 {
		c.Reason, c.Message = AwaitingReports, "no report yet"
		if len(e.Nodes) > 0 {
			c.Reason, c.Message = NoPlugins, noPlugins
		}
		return c
	}
	var found, awaited []Finding
	excused := 0
	for _, n := range e.nodes {
		findings, excuse := e.nodeFindings(n)
		for _, f := range findings {
			if f.Reason == AwaitingReports {
				awaited = add(awaited, f)
			} else {
				found = add(found, f)
			}
		}
		if excuse {
			excused++
		}
	}
	switch {
	case len(found) > 0:
		slices.SortStableFunc(found, byStatus)
		worst := severities[mostSevere(found)]
		c.Status, c.Reason = worst.degraded, string(worst.reason)
		e.describe(&c, found, len(e.Nodes))
	case len(awaited) > 0:
		c.Reason, c.Message = AwaitingReports, text(awaited, len(e.nodes))
	case excused == len(e.nodes):
		c.Reason, c.Message = AsExpected, "no node reports: each is being replaced or is not Ready"
	case excused > 0:
		c.Reason, c.Message = AsExpected, fmt.Sprintf("every plugin is healthy on %d of %d nodes; the others are being replaced or are not Ready", len(e.nodes)-excused, len(e.nodes))
	default:
		c.Reason, c.Message = AsExpected, "every plugin is healthy on "+allOf(len(e.nodes))
	}
	return c
}

const noPlugins = "no pod of the API server has a KMS plugin"

// byStatus puts findings that make Degraded True before those that make it Unknown.
func byStatus(a, b Finding) int {
	return order(severities[severity(b.Reason)].degraded == operatorcr.True, severities[severity(a.Reason)].degraded == operatorcr.True)
}

// nodeFindings are the findings of one node. excused means that its state is unknown for
// a reason that is no failure of its plugins or its reporter.
func (e *evaluation) nodeFindings(n *Node) (findings []Finding, excused bool) {
	if n.Leaving {
		return nil, true
	}
	rows := e.byNode[n.Name]
	reports := slices.ContainsFunc(rows, func(r Row) bool { return r.State != Missing && r.State != Stale })
	findings = n.faultFindings(rows)
	stale := false
	for i := range rows {
		row := &rows[i]
		if row.Unexpected {
			continue
		}
		stale = stale || row.State == Stale
		f, excuse := e.pluginFinding(n, row, reports)
		excused = excused || excuse
		if f.Reason != "" {
			findings = append(findings, f)
		}
	}
	return findings, excused || stale && !reports && n.excused(e.Now)
}

// faultFindings are containers that cannot start. A reporter that crashes but still
// reports has no finding here: KMSHealthDelivery reports it.
func (n *Node) faultFindings(rows []Row) (findings []Finding) {
	complete := len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool {
		return !r.Unexpected && r.State != Healthy && !r.State.Unhealthy()
	})
	for _, f := range n.Faults {
		reason := Reason(PluginNotRunning)
		if f.Reporter {
			reason = ReporterNotRunning
		}
		if !f.Reporter || !complete {
			findings = append(findings, Finding{Reason: reason, Node: n.Name, Subject: f.Container, Detail: f.Why, Look: f.Look})
		}
	}
	return findings
}

// pluginFinding is the finding of a row; without a Reason: none. If some row of the node
// is neither stale nor missing (reports), the finding is about one key, otherwise about
// the whole node.
func (e *evaluation) pluginFinding(n *Node, row *Row, reports bool) (f Finding, excused bool) {
	excuse := n.excused(e.Now)
	ofPlugin := Finding{Node: n.Name, Key: row.KeyID, Detail: row.Detail, Look: n.Look[row.KeyID]}
	ofNode := Finding{Node: n.Name}
	if reports {
		ofNode.Key = row.KeyID
	}
	switch {
	case row.State == Missing:
		ofNode.Reason = AwaitingReports
		return ofNode, false
	case excuse && row.LastChecked.Before(n.PodSince):
		// It is from the previous pod, whose plugins may have ended before its reporter.
		return Finding{}, row.State != Healthy && row.State != Stale
	case excuse && row.Reason == health.SocketMissing:
		return Finding{}, true // the plugin stops before its API server, or starts after it
	case row.State.Unhealthy():
		ofPlugin.Reason = reasonOf(row.Status)
		return ofPlugin, false
	case row.State == Stale && excuse: // the last status still counts
		if row.Status == health.Unhealthy || row.Status == health.Error {
			ofPlugin.Reason = reasonOf(row.Status)
			return ofPlugin, false
		}
	case row.State == Stale:
		ofNode.Reason, ofNode.Look = ReporterStale, n.Look[""]
		return ofNode, false
	case row.State == Skewed:
		return Finding{Reason: ClockSkew, Node: n.Name}, false
	case row.State == Unreadable && !excuse:
		return Finding{Reason: ReportUnreadable, Node: n.Name, Detail: row.Detail}, false
	}
	return Finding{}, false
}

func reasonOf(s health.Status) Reason {
	if s == health.Unhealthy {
		return PluginUnhealthy
	}
	return PluginError
}
