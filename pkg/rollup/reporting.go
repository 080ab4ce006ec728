package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Delivery is how the delivery of the reporters stands: its most severe reason, and a message
// with all of them. The zero Delivery is not known yet.
type Delivery struct {
	Reason, Message string
	// Since is when the evaluating process first saw it so.
	Since time.Time
}

// reporting is the condition Reporting: whether every node that should report does, on the
// plugins of its pod, and what prevents it.
func (e *evaluation) reporting() operatorcr.Condition {
	c := operatorcr.Condition{Type: contract.HealthReporting}
	found, mode := e.deliveryFindings()
	for _, n := range e.nodes {
		for _, f := range n.Faults {
			if f.Reason == contract.ReporterNotRunning {
				found = append(found, f)
			}
		}
		if !e.Alone {
			found = append(found, e.reportFindings(n)...)
		}
	}
	if was, stays := e.unconfirmed(found); stays {
		return was
	}
	switch {
	case len(found) > 0:
		c.Status = e.describe(&c, found, len(e.Nodes), mode...).Reporting
		return c
	case len(e.Nodes) == 0 || e.Alone:
		c.Reason, c.Message = contract.NoPods, noPods
	case len(e.nodes) == 0:
		c.Reason, c.Message = contract.NoPlugins, noPlugins
	case len(e.nodes) == 1:
		c.Reason, c.Message = contract.AsExpected, "the one node reports"
	default:
		c.Reason, c.Message = contract.AsExpected, allOf(len(e.nodes))+" report"
	}
	c.Status = contract.RollupReasonOf(c.Reason).Reporting
	for _, f := range mode {
		c.Message += "; " + f.Text
	}
	return c
}

// OfDelivery is the result where no node can be evaluated, or none should report: the condition
// Reporting by what prevents or delays the delivery, if it says anything.
func OfDelivery(in *Input) *Result {
	e := evaluation{Input: in, found: map[string][]Finding{}}
	found, _ := e.deliveryFindings()
	if len(found) == 0 {
		return &Result{}
	}
	c := operatorcr.Condition{Type: contract.HealthReporting}
	c.Status = e.describe(&c, found, 0).Reporting
	c.Settle(in.Previous, in.Now)
	return &Result{Conditions: []operatorcr.Condition{c}, Deadline: e.again}
}

// deliveryFindings are what the delivery is kept from, or does; else mode, how the reporters are
// deployed. What is under way without a change for a FirstReport is a problem.
func (e *evaluation) deliveryFindings() (found, mode []Finding) {
	f := Finding{Reason: e.Delivery.Reason, Text: e.Delivery.Message}
	switch f.Reason {
	case "", contract.Off, contract.Removed:
		return nil, nil
	case contract.AsExpected, contract.Unmanaged, contract.NoPods:
		return nil, []Finding{f}
	}
	if !contract.RollupReasonOf(e.Delivery.Reason).UnderWay {
		return []Finding{f}, nil
	}
	due := e.Delivery.Since.Add(FirstReport)
	// What the process before had found stays until this one knows better.
	stays := e.Previous[contract.HealthReporting].Reason == contract.ProgressDeadlineExceeded &&
		e.Now.Before(e.Began.Add(FirstReport))
	if stays || !e.Now.Before(due) {
		f.Reason = contract.ProgressDeadlineExceeded
	}
	e.lookAgain(due)
	return []Finding{f}, nil
}

// unconfirmed is the problem of a delivery that an earlier process had found, while this one
// does not know it, and has found nothing more severe.
func (e *evaluation) unconfirmed(found []Finding) (was operatorcr.Condition, stays bool) {
	was = e.Previous[contract.HealthReporting]
	row := contract.RollupReasonOf(was.Reason)
	if e.Delivery.Reason != "" || was.Reason == "" || !row.NeedsAction {
		return was, false
	}
	return was, !slices.ContainsFunc(found, func(f Finding) bool {
		return contract.Severity(f.Reason) < contract.Severity(was.Reason)
	})
}

// reportFindings are what is wrong with the report of a node.
func (e *evaluation) reportFindings(n *Node) (found []Finding) {
	rows := e.byNode[n.Name]
	reported := reportedKeys(rows)
	other := false
	for i := range rows {
		row := &rows[i]
		other = other || row.Unexpected
		f := Finding{Node: n.Name}
		switch {
		case n.Unattended && row.Silent():
			f.Reason, f.Text = contract.Unmanaged, "has no reporter, and managementState is Unmanaged"
		case row.State == Missing && !e.overdue(n, row.KeyID):
			f.Reason, f.Text = contract.Progressing, notReported
			if len(reported) > 0 {
				f.Key = row.KeyID
			}
		case row.State == Missing && len(reported) > 0:
			other = true
		case row.State == Missing && !n.Ready:
			f.Reason, f.Text, f.Excused = contract.ReportsMissing, "not reported; the Node is not Ready", true
		case row.State == Missing:
			f.Reason, f.Text, f.Look = contract.ReportsMissing, notReported, n.Look[""]
		case row.State == Stale && (n.Leaving || e.Now.Before(n.QuietUntil)):
			f.Reason, f.Text, f.Excused = contract.ReporterStale, "no reports while its API server is replaced", true
		case row.State == Stale && !n.Ready:
			f.Reason, f.Text, f.Excused = contract.ReporterStale, silent+"; the Node is not Ready", true
		case row.State == Stale:
			f.Reason, f.Text, f.Look = contract.ReporterStale, silent, n.Look[""]
		case row.State == Unreadable:
			f.Reason, f.Text, f.Detail, f.Look = contract.ReportUnreadable, notReadable, row.Detail, n.Look[""]
		}
		if f.Reason != "" {
			found = append(found, f)
		}
	}
	if other {
		found = append(found, Finding{Reason: contract.OtherPlugins, Node: n.Name,
			Text: "reports on " + keys(reported) + ", but its pod has " + keys(n.Keys)})
	}
	return found
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
