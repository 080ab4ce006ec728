package rollup

import (
	"slices"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// observed is the condition Observed: whether every node that should report does, and on
// the plugins of its pod.
func (e *evaluation) observed() operatorcr.Condition {
	c := operatorcr.Condition{Type: Observed, Status: operatorcr.True, Reason: AsExpected, Message: allOf(len(e.nodes)) + " report"}
	switch {
	case len(e.Nodes) == 0 || e.Alone:
		c.Status, c.Reason, c.Message = operatorcr.False, NoPods, "no pod of the API server runs on a node"
		return c
	case len(e.nodes) == 0:
		c.Reason, c.Message = NoPlugins, noPlugins
		return c
	case len(e.nodes) == 1:
		c.Message = "the one node reports"
	}
	var found []Finding
	for _, n := range e.nodes {
		reported := reportedKeys(e.byNode[n.Name])
		other := false
		for i := range e.byNode[n.Name] {
			row := &e.byNode[n.Name][i]
			other = other || row.Unexpected || row.State == Missing && len(reported) > 0
			if f := e.reportFinding(n, row, len(reported) > 0); f.Reason != "" {
				found = add(found, f)
			}
		}
		if other {
			found = add(found, Finding{Reason: OtherPlugins, Node: n.Name, Subject: keys(reported), Expected: keys(n.Keys)})
		}
	}
	if len(found) > 0 {
		c.Status, c.Reason = operatorcr.False, string(severities[mostSevere(found)].reason)
		e.describe(&c, found, len(e.Nodes))
	}
	return c
}

// reportFinding is the finding about a report; without a Reason: none.
func (e *evaluation) reportFinding(n *Node, row *Row, reports bool) Finding {
	f := Finding{Node: n.Name}
	switch {
	case row.State == Missing && !reports:
		f.Reason, f.Look = ReportsMissing, n.Look[""]
	case row.State == Stale && (n.Leaving || e.Now.Before(n.QuietUntil)):
		f.Reason, f.Fact = ReporterStale, APIServerReplaced
	case row.State == Stale && !n.Ready:
		f.Reason, f.Fact = ReporterStale, NodeNotReady
	case row.State == Stale:
		f.Reason, f.Look = ReporterStale, n.Look[""]
	case row.State == Skewed:
		f.Reason = ClockSkew
	case row.State == Unreadable:
		f.Reason, f.Detail, f.Look = ReportUnreadable, row.Detail, n.Look[""]
	}
	return f
}

// reportedKeys are those that a node reports on.
func reportedKeys(rows []Row) (ids []string) {
	for _, row := range rows {
		if row.State != Missing && row.KeyID != "" && !slices.Contains(ids, row.KeyID) {
			ids = append(ids, row.KeyID)
		}
	}
	return ids
}
