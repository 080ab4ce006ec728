package rollup

import (
	"maps"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// State is the known state of one plugin on one node.
type State string

const (
	Healthy          = State(contract.Healthy) // and these two: the status of a fresh entry
	Unhealthy        = State(contract.Unhealthy)
	Error            = State(contract.Error)
	Stale      State = "stale"      // the last entry is too old to be valid
	Unreadable State = "unreadable" // there is a report, but it cannot be decoded
	Missing    State = "missing"    // there is no report yet
)

// States are all of them.
var States = []State{Healthy, Unhealthy, Error, Stale, Unreadable, Missing}

// Unhealthy reports whether a plugin is known to be unhealthy.
func (s State) Unhealthy() bool { return s == Unhealthy || s == Error }

// known reports whether a fresh entry has the state.
func (s State) known() bool { return s == Healthy || s.Unhealthy() }

// Row is one plugin on one node.
type Row struct {
	Node           string
	State          State
	contract.Entry      // the last one; of a missing or unreadable report the KeyID or the Detail, if known
	Unexpected     bool // the node's pod has no such plugin: its reporter uses another file
}

// Silent reports whether there is no valid report.
func (r Row) Silent() bool { return r.State == Missing || r.State == Stale }

// Rows are the plugins of all nodes that report or should report, by node, the write key
// first on each. again is when they change without another write, zero: never.
func Rows(reports []operatorcr.Report, nodes []Node, now time.Time) (rows []Row, again time.Time) {
	reported, expected := map[string][]*operatorcr.Report{}, map[string]*Node{}
	for i := range nodes {
		expected[nodes[i].Name], reported[nodes[i].Name] = &nodes[i], nil
	}
	for i := range reports {
		reported[reports[i].Node] = append(reported[reports[i].Node], &reports[i])
	}
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		more, at := nodeRows(reported[name], expected[name], now)
		rows, again = append(rows, more...), earliest(again, at)
	}
	return rows, again
}

// nodeRows are the rows of one node. A condition that was written for the API server's pod
// counts alone, so that two reporters never change a verdict in turns. Typed reports count
// on a node without one. Where what it reports on a plugin is not known, since it is stale
// or cannot be read, a fresh typed report that the plugin is unhealthy counts: that is an
// observation, and nothing contradicts it.
func nodeRows(reports []*operatorcr.Report, node *Node, now time.Time) (rows []Row, again time.Time) {
	var typed []Row
	for _, r := range reports {
		of := &rows
		if r.Form == operatorcr.FormTyped {
			of = &typed
		}
		if *of == nil {
			var at time.Time
			*of, at = reportRows(r, node, now)
			again = earliest(again, at)
		}
	}
	if len(rows) == 0 {
		rows = typed
	} else {
		rows = withUnhealthy(rows, typed)
	}
	if node == nil {
		return rows, again
	}
	for _, key := range node.Keys { // that should be reported
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.KeyID == key || r.State == Unreadable }) {
			rows = append(rows, Row{Node: node.Name, State: Missing, Entry: contract.Entry{KeyID: key}})
		}
	}
	if len(rows) == 0 && node.Keys == nil {
		rows = []Row{{Node: node.Name, State: Missing}}
	}
	return rows, again
}

// reportRows are the rows of one report, of the entries that count. again is when one may
// change without another write; zero: never.
func reportRows(r *operatorcr.Report, node *Node, now time.Time) (rows []Row, again time.Time) {
	if r.Err != nil {
		return []Row{{Node: r.Node, State: Unreadable,
			Entry: contract.Entry{Detail: contract.CleanDetail(r.Err.Error())}}}, time.Time{}
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		if !node.counts(r, e) {
			continue
		}
		row := Row{Node: r.Node, Entry: *e, State: Stale}
		row.Unexpected = node != nil && node.Keys != nil && !slices.Contains(node.Keys, e.KeyID)
		switch {
		case e.Skewed(now): // its writer is not known by the API server's clock: it has no age
			again = earliest(again, e.FreshFrom())
		case !e.Stale(now):
			row.State, again = State(e.Status), earliest(again, e.StaleAt().Add(1))
		}
		rows = append(rows, row)
	}
	return rows, again
}

// withUnhealthy replaces rows whose plugin's state is not known by fresh ones of typed
// reports, where those are unhealthy.
func withUnhealthy(rows, typed []Row) []Row {
	for _, t := range typed {
		if !t.State.Unhealthy() {
			continue
		}
		at := slices.IndexFunc(rows, func(r Row) bool { return r.KeyID == t.KeyID })
		switch {
		case at >= 0 && !rows[at].State.known():
			rows[at] = t
		case at < 0 && !slices.ContainsFunc(rows, func(r Row) bool { return r.State.known() }):
			rows = append(rows, t)
		}
	}
	return rows
}

// earliest is the earlier of two instants, where zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
