package rollup

import (
	"fmt"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// degraded is the condition Degraded: whether a plugin is unhealthy. A plugin known to be
// unhealthy outweighs one whose state is unknown.
func (e *evaluation) degraded() operatorcr.Condition {
	c := operatorcr.Condition{Type: contract.PluginsDegraded, Status: operatorcr.False}
	found, awaited := slices.Clone(e.NotObserved), []Finding(nil)
	if len(e.nodes) == 0 && len(found) == 0 {
		c.Reason, c.Message = contract.AwaitingReports, "no report yet"
		if len(e.Nodes) > 0 {
			c.Reason, c.Message = contract.NoPlugins, noPlugins
		}
		return c
	}
	excused := 0
	for _, n := range e.nodes {
		findings, excuse := e.nodeFindings(n)
		for _, f := range findings {
			if f.Reason == contract.AwaitingReports {
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
		c.Status = e.describe(&c, found, len(e.Nodes)).Degraded
	case len(awaited) > 0:
		c.Reason, c.Message = contract.AwaitingReports, text(awaited, len(e.nodes))
	case excused == len(e.nodes):
		c.Reason, c.Message = contract.AsExpected, "no node reports: each is being replaced, is not Ready, or has no reporter"
	case excused > 0:
		c.Reason, c.Message = contract.AsExpected,
			fmt.Sprintf("every plugin is healthy on %d of %d nodes; the others are being replaced, are not Ready, or have "+
				"no reporter", len(e.nodes)-excused, len(e.nodes))
	default:
		c.Reason, c.Message = contract.AsExpected, "every plugin is healthy on "+allOf(len(e.nodes))
	}
	return c
}

const noPlugins = "no pod of the API server has a KMS plugin"

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
// reports has no finding here: KMSHealthReporting has it.
func (n *Node) faultFindings(rows []Row) (findings []Finding) {
	complete := len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool {
		return !r.Unexpected && r.State != Healthy && !r.State.Unhealthy()
	})
	for _, f := range n.Faults {
		reason := contract.PluginNotRunning
		if f.Reporter {
			reason = contract.ReporterNotRunning
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
	case n.Unattended && (row.State == Missing || row.State == Stale):
		return Finding{}, true
	case row.State == Missing:
		if ofNode.Reason = e.missingReason(n, row.KeyID); ofNode.Reason == contract.ReportsMissing {
			ofNode.Look = n.Look[""]
		}
		return ofNode, false
	case excuse && row.beforePod:
		// It is from the previous pod, whose plugins may have ended before its reporter.
		return Finding{}, row.State != Healthy && row.State != Stale
	case excuse && row.Reason == contract.SocketMissing:
		return Finding{}, true // the plugin stops before its API server, or starts after it
	case row.State.Unhealthy():
		ofPlugin.Reason = reasonOf(row.Status)
		return ofPlugin, false
	case row.State == Stale && excuse: // the last status still counts
		if row.Status == contract.Unhealthy || row.Status == contract.Error {
			ofPlugin.Reason = reasonOf(row.Status)
			return ofPlugin, false
		}
	case row.State == Stale:
		ofNode.Reason, ofNode.Look = contract.ReporterStale, n.Look[""]
		return ofNode, false
	case row.State == Unreadable && excuse:
		return Finding{}, true
	case row.State == Unreadable:
		return Finding{Reason: contract.ReportUnreadable, Node: n.Name, Detail: row.Detail}, false
	}
	return Finding{}, false
}

// missingReason is the reason of a plugin that is expected and not reported.
func (e *evaluation) missingReason(n *Node, keyID string) string {
	// A start of the API server excuses nothing here: that is in what is overdue, and one that is
	// restarted again and again would be excused for ever.
	if n.Ready && !n.Leaving && e.overdue(n, keyID) {
		return contract.ReportsMissing
	}
	return contract.AwaitingReports
}

// overdue reports whether a plugin that is not reported should have been by now. What the
// process before had found stays until this one knows better.
func (e *evaluation) overdue(n *Node, keyID string) bool {
	seen := n.ExpectedSince[keyID]
	due := latest(n.Started, n.ReporterCreated).Add(FirstReport)
	own := seen.Add(FirstReport)
	if e.Now.Before(due) {
		e.lookAgain(latest(due, own))
		return false
	}
	e.lookAgain(own)
	stands := e.Previous[contract.PluginsDegraded].Status == operatorcr.Unknown && !seen.After(e.Began)
	return !e.Now.Before(own) || stands
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func reasonOf(s contract.Status) string {
	if s == contract.Unhealthy {
		return contract.PluginUnhealthy
	}
	return contract.PluginError
}
