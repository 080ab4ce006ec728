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
	found, excused := slices.Clone(e.NotObserved), 0
	for _, n := range e.nodes {
		findings, excuse := e.nodeFindings(n)
		found = append(found, findings...)
		if excuse {
			excused++
		}
	}
	switch all := len(e.nodes); {
	case len(found) > 0:
		c.Status = e.describe(&c, found, len(e.Nodes)).Degraded
	case len(e.Nodes) == 0:
		c.Reason, c.Message = contract.NoPods, noPods
	case all == 0:
		c.Reason, c.Message = contract.NoPlugins, noPlugins
	case excused == all:
		c.Reason, c.Message = contract.AsExpected, "no node reports: each is being replaced, is not Ready, or has no reporter"
	case excused > 0:
		c.Reason, c.Message = contract.AsExpected,
			fmt.Sprintf("every plugin is healthy on %d of %d nodes; the others are being replaced, are not Ready, or have "+
				"no reporter", all-excused, all)
	default:
		c.Reason, c.Message = contract.AsExpected, "every plugin is healthy on "+allOf(all)
	}
	return c
}

const (
	noPods    = "no pod of the API server runs on a node"
	noPlugins = "no pod of the API server has a KMS plugin"
)

// nodeFindings are the findings of one node. excused means that its state is unknown for
// a reason that is no failure of its plugins or its reporter.
func (e *evaluation) nodeFindings(n *Node) (findings []Finding, excused bool) {
	if n.Leaving {
		return nil, true
	}
	rows := e.byNode[n.Name]
	reports := slices.ContainsFunc(rows, func(r Row) bool { return !r.Silent() })
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
func (n *Node) faultFindings(rows []Row) []Finding {
	complete := len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool {
		return !r.Unexpected && !r.State.known()
	})
	return slices.DeleteFunc(slices.Clone(n.Faults), func(f Finding) bool {
		return complete && f.Reason == contract.ReporterNotRunning
	})
}

// pluginFinding is the finding of a row; without a Reason: none. If some row of the node
// is neither stale nor missing (reports), the finding is about one key, otherwise about
// the whole node.
func (e *evaluation) pluginFinding(n *Node, row *Row, reports bool) (f Finding, excused bool) {
	excuse := n.excused(e.Now)
	ofNode := Finding{Node: n.Name}
	if reports {
		ofNode.Key = row.KeyID
	}
	unhealthy := row.Status == contract.Unhealthy || row.Status == contract.Error // also as last reported
	switch {
	case n.Unattended && row.Silent():
		return f, true
	case row.State == Missing:
		ofNode.Reason, ofNode.Text = contract.Progressing, notReported
		// A start of the API server excuses nothing here: that is in what is overdue, and one that is
		// restarted again and again would be excused for ever.
		if n.Ready && e.overdue(n, row.KeyID) {
			ofNode.Reason, ofNode.Look = contract.ReportsMissing, n.Look[""]
		}
		return ofNode, false
	case excuse && row.beforePod:
		// It is from the previous pod, whose plugins may have ended before its reporter.
		return f, row.State != Healthy && row.State != Stale
	case excuse && row.Reason == contract.SocketMissing:
		return f, true // the plugin stops before its API server, or starts after it
	case row.State.Unhealthy(), row.State == Stale && excuse && unhealthy: // the last status still counts
		f = Finding{Node: n.Name, Key: row.KeyID, Detail: row.Detail, Look: n.Look[row.KeyID]}
		f.Reason, f.Text = contract.PluginError, "error"
		if row.Status == contract.Unhealthy {
			f.Reason, f.Text = contract.PluginUnhealthy, "unhealthy"
		}
		return f, false
	case row.State == Stale && !excuse:
		ofNode.Reason, ofNode.Text, ofNode.Look = contract.ReporterStale, silent, n.Look[""]
		if reports {
			ofNode.Text = noLonger
		}
		return ofNode, false
	case row.State == Unreadable && !excuse:
		return Finding{Reason: contract.ReportUnreadable, Node: n.Name, Text: notReadable, Detail: row.Detail}, false
	}
	return f, row.State == Unreadable
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
