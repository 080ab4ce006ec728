package rollup

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// State is what is known of one plugin on one node.
type State string

const (
	// Healthy, Unhealthy and Error are what a fresh entry says.
	Healthy   = State(health.Healthy)
	Unhealthy = State(health.Unhealthy)
	Error     = State(health.Error)
	// Stale: the last entry is too old to be believed.
	Stale = State(health.Stale)
	// Skewed: the node's clock and ours differ, so no age can be told.
	Skewed = State(health.Skewed)
	// Unreadable: there is a report, and it cannot be understood.
	Unreadable State = "unreadable"
	// Missing: no report was seen yet.
	Missing State = "missing"
)

// Ill says whether a plugin is known to be ill.
func (s State) Ill() bool { return s == Unhealthy || s == Error }

// Row is one plugin on one node.
type Row struct {
	Node  string
	State State
	// Entry is the last there was; of a report that is missing or unreadable, its
	// KeyID at most. Its Detail is why, where that is known.
	health.Entry
	// Unexpected says that the node's pod has no such plugin: its reporter goes by
	// another file.
	Unexpected bool
}

// behind bounds how far a node's clock may be behind the API server's before an
// entry counts as skewed rather than stale: a write may take its time, two
// intervals and this.
const behind = 10 * time.Second

// state judges an entry, by its own time and by when the API server took the
// report, the newest entry of which tells the node's clock: another key's may have
// stopped long ago. again is when the judgement may be another.
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

// Rows are the plugins of all nodes that report or should, by node, the write key
// first on each. again is when they change though nobody writes, zero: never.
func Rows(reports []Report, nodes []Node, now time.Time) (rows []Row, again time.Time) {
	said := make([]*Report, len(reports))
	for i := range reports {
		said[i] = &reports[i]
	}
	slices.SortStableFunc(said, func(a, b *Report) int { return strings.Compare(a.Node, b.Node) })
	expected := make([]*Node, len(nodes))
	for i := range nodes {
		expected[i] = &nodes[i]
	}
	slices.SortStableFunc(expected, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	rows = make([]Row, 0, 2*max(len(reports), len(nodes)))
	for len(said) > 0 || len(expected) > 0 {
		name := ""
		if len(said) > 0 {
			name = said[0].Node
		}
		if len(expected) > 0 && (len(said) == 0 || expected[0].Name < name) {
			name = expected[0].Name
		}
		var node *Node
		for len(expected) > 0 && expected[0].Name == name {
			node, expected = expected[0], expected[1:]
		}
		n := 0
		for n < len(said) && said[n].Node == name {
			n++
		}
		more, at := nodeRows(name, said[:n], node, now)
		rows, said = append(rows, more...), said[n:]
		again = earliest(again, at)
	}
	return rows, again
}

// nodeRows judges one node by what it says in both forms: of each key the newest,
// and nothing by a form that is no longer written while another is.
func nodeRows(name string, reports []*Report, node *Node, now time.Time) (rows []Row, again time.Time) {
	type side struct {
		form  Form
		rows  []Row
		again time.Time
		newer time.Time
		lives bool
	}
	sides := make([]side, 0, 2)
	for _, r := range reports {
		s := side{form: r.Form, rows: make([]Row, 0, len(r.Entries))}
		if r.Err != nil {
			s.rows = []Row{{Node: name, State: Unreadable, Entry: health.Entry{Detail: health.CleanDetail(r.Err.Error())}}}
		}
		var written time.Time // by a reporter of ours, which writes one node; others may write many
		if r.Ours {
			written = r.Written
		}
		for i := range r.Entries {
			if at := r.Entries[i].LastChecked; at.After(s.newer) {
				s.newer = at
			}
		}
		for i := range r.Entries {
			e := r.Entries[i]
			if e.Interval <= 0 {
				e.Interval = otherInterval(&e, reports)
			}
			row := Row{Node: name, Entry: e, Unexpected: node != nil && !node.expects(e.KeyID)}
			var at time.Time
			row.State, at = state(&e, s.newer, written, now)
			s.again = earliest(s.again, at)
			s.lives = s.lives || row.State != Stale
			s.rows = append(s.rows, row)
		}
		sides = append(sides, s)
	}
	// The one that is written comes first, the newer of two, and of what is as new
	// the condition, which says more.
	slices.SortStableFunc(sides, func(a, b side) int {
		return cmp.Or(order(b.lives, a.lives), b.newer.Compare(a.newer), strings.Compare(string(a.form), string(b.form)))
	})
	for i, s := range sides {
		if i > 0 && !s.lives {
			break
		}
		again = earliest(again, s.again)
		if i == 0 {
			rows = s.rows
			continue
		}
		for _, row := range s.rows {
			at := slices.IndexFunc(rows, func(had Row) bool { return had.KeyID == row.KeyID })
			switch {
			case at < 0:
				rows = append(rows, row)
			case row.LastChecked.After(rows[at].LastChecked):
				rows[at] = row
			}
		}
	}
	if node == nil {
		return rows, again
	}
	for _, key := range node.Keys {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.KeyID == key || r.State == Unreadable }) {
			rows = append(rows, Row{Node: name, State: Missing, Entry: health.Entry{KeyID: key}})
		}
	}
	if len(rows) == 0 && node.Keys == nil {
		rows = []Row{{Node: name, State: Missing}}
	}
	return rows, again
}

// otherInterval is how often a plugin is checked of which one form of report does
// not say it, where the other does, and was written by the same reporter: at the
// same time, or one of the two at the check before. Zero where nobody says.
func otherInterval(e *health.Entry, reports []*Report) time.Duration {
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

// earliest is the earlier of two instants, where zero stands for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
