package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// QuietPeriod is for how long missing reports of a node are excused while its API server
// is replaced: longer than a kube-apiserver takes to shut down and its successor to
// start.
const QuietPeriod = 3 * time.Minute

// Cleaning is the input of Leftovers.
type Cleaning struct {
	Now     time.Time
	Reports []operatorcr.Report
	Off     bool   // no node should report any more
	Nodes   []Node // that should report
	// Node returns when a Node was created, if it exists; nil while that is not known.
	Node func(name string) (created time.Time, exists bool)
	// Removed has when a node's report was removed before. One that is there again was written
	// by a reporter that was still running.
	Removed map[string]time.Time
}

// Leftovers returns the own reports that no reporter will write again, and when to check
// again; zero: not before a change.
//
// A report is removed if its Node no longer exists, or is newer than the report; if KMS is
// off; and if it has been stale for a QuietPeriod and its node has no pod of the target. One
// that is stale stays while its node should report, also beside a third-party reporter's. A
// report that was removed and written again is removed when it is stale, to avoid a conflict
// with a reporter that still writes.
func Leftovers(in *Cleaning) (gone []operatorcr.Report, again time.Time) {
	for i := range in.Reports {
		r := &in.Reports[i]
		due, goes := in.due(r, !slices.ContainsFunc(in.Nodes, func(n Node) bool {
			return n.Name == r.Node && !n.withoutPlugins()
		}))
		switch {
		case !goes:
		case in.Now.Before(due):
			again = earliest(again, due)
		default:
			gone = append(gone, *r)
		}
	}
	return gone, again
}

// due is when a report may be removed, if at all. idle means that no reporter should
// write it, although its node exists.
func (in *Cleaning) due(r *operatorcr.Report, idle bool) (at time.Time, goes bool) {
	if !r.Ours {
		return time.Time{}, false
	}
	newest, stale := last(r)
	gone := in.Off
	if in.Node != nil {
		created, exists := in.Node(r.Node)
		gone = gone || !exists || newest.Before(created)
	}
	switch _, before := in.Removed[r.Node]; {
	case gone && before:
		return stale, true
	case gone:
		return in.Now, true
	}
	return stale.Add(QuietPeriod), idle && in.Node != nil
}

// last is when the newest entry was made, and the last instant at which any entry is not stale.
func last(r *operatorcr.Report) (newest, stale time.Time) {
	if len(r.Entries) == 0 { // unreadable: the time of the write instead
		assumed := contract.Entry{LastChecked: r.Written}
		return r.Written, assumed.StaleAt()
	}
	for i := range r.Entries {
		newest, stale = latest(newest, r.Entries[i].LastChecked), latest(stale, r.Entries[i].StaleAt())
	}
	return newest, stale
}
