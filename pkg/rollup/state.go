package rollup

import (
	"slices"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// State is the known state of one plugin on one node.
type State string

const (
	Healthy          = State(contract.Healthy) // this and the next two: the status of a fresh entry
	Unhealthy        = State(contract.Unhealthy)
	Error            = State(contract.Error)
	Stale      State = "stale"      // the entry has not changed for too long to be valid
	Unreadable State = "unreadable" // there is a report, but it cannot be decoded
	Missing    State = "missing"    // there is no report yet
)

// States are all of them.
var States = []State{Healthy, Unhealthy, Error, Stale, Unreadable, Missing}

// Unhealthy reports whether a plugin is known to be unhealthy.
func (s State) Unhealthy() bool { return s == Unhealthy || s == Error }

// Row is one plugin on one node.
type Row struct {
	Node  string
	State State
	Entry // the last one; if Missing only with a KeyID, if known; if Unreadable only with a Detail
}

// Silent reports whether there is no valid report.
func (r *Row) Silent() bool { return r.State == Missing || r.State == Stale }

// rows returns the plugins of one node. Typed reports do not count beside a condition that was written for the API
// server's pod, so that two reporters never change a verdict in turns.
func (e *evaluation) rows(reports []*Report, node *Node) (rows []Row) {
	for _, form := range []operatorstatus.Form{operatorstatus.FormCondition, operatorstatus.FormTyped} {
		for _, r := range reports {
			if len(rows) == 0 && r.Form == form {
				rows = e.reportRows(r, node)
			}
		}
	}
	if node == nil {
		return rows
	}
	for _, key := range node.Keys { // that should be reported
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.KeyID == key || r.State == Unreadable }) {
			rows = append(rows, Row{Node: node.Name, State: Missing, Entry: Entry{Entry: contract.Entry{KeyID: key}}})
		}
	}
	if len(rows) == 0 && node.Keys == nil {
		rows = []Row{{Node: node.Name, State: Missing}}
	}
	return rows
}

// reportRows returns the rows of the entries of a report that count; if none does, of the report that it overwrote.
func (e *evaluation) reportRows(r *Report, node *Node) (rows []Row) {
	if r.Err != nil {
		detail := contract.Entry{Detail: contract.CleanDetail(r.Err.Error())}
		return []Row{{Node: r.Node, State: Unreadable, Entry: Entry{Entry: detail}}}
	}
	for i := range r.Entries {
		entry := &r.Entries[i]
		if !node.counts(entry) {
			continue
		}
		row := Row{Node: r.Node, Entry: *entry, State: Stale}
		if until := entry.FreshUntil(); e.before(until) || e.Now.Before(until.Add(e.Behind)) {
			row.State = State(entry.Status)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 && r.Overwritten != nil {
		return e.reportRows(r.Overwritten, node)
	}
	return rows
}
