package rollup

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// State is the known state of one plugin on one node.
type State string

const (
	// Healthy, Unhealthy and Error are the status of a fresh entry.
	Healthy   = State(health.Healthy)
	Unhealthy = State(health.Unhealthy)
	Error     = State(health.Error)
	// Stale: the last entry is too old to be valid.
	Stale = State(health.Stale)
	// Skewed: the node's clock differs from the API server's, so the age is not known.
	Skewed = State(health.Skewed)
	// Unreadable: there is a report, but it cannot be decoded.
	Unreadable State = "unreadable"
	// Missing: there is no report yet.
	Missing State = "missing"
)

// Unhealthy reports whether a plugin is known to be unhealthy.
func (s State) Unhealthy() bool { return s == Unhealthy || s == Error }

// Row is one plugin on one node.
type Row struct {
	Node  string
	State State
	// Entry is the last one; for a missing or unreadable report it has at most its
	// KeyID. Its Detail is the cause, if known.
	health.Entry
	// Unexpected means that the node's pod has no such plugin: its reporter uses another
	// file.
	Unexpected bool
}

// behind bounds how far a node's clock may be behind the API server's before an
// entry counts as skewed rather than stale: a write may take two intervals and this
// long.
const behind = 10 * time.Second

// state is the State of an entry, by its own time and by when the API server stored the
// report. The report's newest entry shows the node's clock: that of another key may have
// ended long ago. again is when the State may change.
func state(e *health.Entry, newest, written, now time.Time) (s State, again time.Time) {
	interval := e.Interval
	if interval <= 0 {
		interval = health.DefaultInterval
	}
	switch e.Freshness(now) {
	case health.Fresh:
		return State(e.Status), e.StaleAt().Add(1)
	case health.Skewed:
		return Skewed, e.LastChecked.Add(-interval)
	}
	late := written.Sub(newest)
	if age := e.StaleAt().Sub(e.LastChecked); late > 2*interval+behind && !now.After(written.Add(age)) {
		return Skewed, written.Add(age + 1)
	}
	return Stale, time.Time{}
}

// Rows are the plugins of all nodes that report or should report, by node, the write key
// first on each. again is when they change without another write, zero: never.
func Rows(reports []operatorcr.Report, nodes []Node, now time.Time) (rows []Row, again time.Time) {
	sorted := make([]*operatorcr.Report, len(reports))
	for i := range reports {
		sorted[i] = &reports[i]
	}
	slices.SortStableFunc(sorted, func(a, b *operatorcr.Report) int { return strings.Compare(a.Node, b.Node) })
	expected := make([]*Node, len(nodes))
	for i := range nodes {
		expected[i] = &nodes[i]
	}
	slices.SortStableFunc(expected, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	rows = make([]Row, 0, 2*max(len(reports), len(nodes)))
	for len(sorted) > 0 || len(expected) > 0 {
		name := ""
		if len(sorted) > 0 {
			name = sorted[0].Node
		}
		if len(expected) > 0 && (len(sorted) == 0 || expected[0].Name < name) {
			name = expected[0].Name
		}
		var node *Node
		for len(expected) > 0 && expected[0].Name == name {
			node, expected = expected[0], expected[1:]
		}
		n := 0
		for n < len(sorted) && sorted[n].Node == name {
			n++
		}
		more, at := nodeRows(sorted[:n], node, now)
		rows, sorted = append(rows, more...), sorted[n:]
		again = earliest(again, at)
	}
	return rows, again
}

// formRows are the rows of one report of a node.
type formRows struct {
	form   operatorcr.Form
	rows   []Row
	newest time.Time // entry
	fresh  bool      // some row is not stale
	again  time.Time // when a row may change without another write; zero: never
}

// nodeRows are the rows of one node from its reports in both forms: for each key the newest
// entry counts, and none of a form that is no longer written, or not since the API server's
// pod was made, while another one is.
func nodeRows(reports []*operatorcr.Report, node *Node, now time.Time) (rows []Row, again time.Time) {
	forms := make([]formRows, 0, 2)
	for _, r := range reports {
		forms = append(forms, judgeForm(r, reports, node, now))
	}
	// Precedence: the form that is still written, then the newer one, then the condition,
	// which has more fields.
	slices.SortStableFunc(forms, func(a, b formRows) int {
		return cmp.Or(order(b.fresh, a.fresh), b.newest.Compare(a.newest), strings.Compare(string(a.form), string(b.form)))
	})
	for i, f := range forms {
		if i > 0 && !f.fresh {
			break
		}
		if i > 0 && node != nil && f.newest.Before(node.PodSince) && !forms[0].newest.Before(node.PodSince) {
			break // it is about the pod before
		}
		again = earliest(again, f.again)
		if i == 0 {
			rows = f.rows
			continue
		}
		rows = merge(rows, f.rows)
	}
	if node == nil {
		return rows, again
	}
	return node.addMissing(rows), again
}

func judgeForm(r *operatorcr.Report, reports []*operatorcr.Report, node *Node, now time.Time) formRows {
	f := formRows{form: r.Form, rows: make([]Row, 0, len(r.Entries))}
	if r.Err != nil {
		f.rows = []Row{{Node: r.Node, State: Unreadable, Entry: health.Entry{Detail: health.CleanDetail(r.Err.Error())}}}
	}
	var written time.Time // by an own reporter, which writes for one node; third-party ones may write for many
	if r.Ours {
		written = r.Written
	}
	for i := range r.Entries {
		if at := r.Entries[i].LastChecked; at.After(f.newest) {
			f.newest = at
		}
	}
	for _, e := range r.Entries {
		if e.Interval <= 0 {
			e.Interval = otherInterval(&e, reports)
		}
		row := Row{Node: r.Node, Entry: e, Unexpected: node != nil && !node.expects(e.KeyID)}
		var at time.Time
		row.State, at = state(&e, f.newest, written, now)
		f.again = earliest(f.again, at)
		f.fresh = f.fresh || row.State != Stale
		f.rows = append(f.rows, row)
	}
	return f
}

// merge adds another form's rows: for each key the newer one counts.
func merge(rows, others []Row) []Row {
	for _, row := range others {
		at := slices.IndexFunc(rows, func(had Row) bool { return had.KeyID == row.KeyID })
		switch {
		case at < 0:
			rows = append(rows, row)
		case row.LastChecked.After(rows[at].LastChecked):
			rows[at] = row
		}
	}
	return rows
}

// addMissing adds rows for the keys that should be reported and are not.
func (n *Node) addMissing(rows []Row) []Row {
	for _, key := range n.Keys {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.KeyID == key || r.State == Unreadable }) {
			rows = append(rows, Row{Node: n.Name, State: Missing, Entry: health.Entry{KeyID: key}})
		}
	}
	if len(rows) == 0 && n.Keys == nil {
		rows = []Row{{Node: n.Name, State: Missing}}
	}
	return rows
}

// otherInterval is the interval of a plugin whose report has none, from the other form
// of report, if the same reporter wrote it: at the same time, or one of the two at the
// previous check. Zero if it is not known.
func otherInterval(e *health.Entry, reports []*operatorcr.Report) time.Duration {
	for i := range reports {
		for j := range reports[i].Entries {
			other := &reports[i].Entries[j]
			if other.KeyID == e.KeyID && other.Interval > 0 && other.LastChecked.Sub(e.LastChecked).Abs() <= other.Interval+time.Second {
				return other.Interval
			}
		}
	}
	return 0
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// earliest is the earlier of two instants, where zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
