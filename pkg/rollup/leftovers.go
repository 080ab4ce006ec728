package rollup

import (
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// QuietPeriod is for how long a node may be silent while its API server is
// replaced: longer than a kube-apiserver takes to end in order and its successor
// to start.
const QuietPeriod = 3 * time.Minute

// Cleaning is what a decision about leftovers stands on.
type Cleaning struct {
	Now     time.Time
	Reports []operatorcr.Report
	// Off means that nobody is to report any more.
	Off bool
	// Nodes are those that should report.
	Nodes []Node
	// Made is when each Node that exists was made; nil while it is not known.
	Made map[string]time.Time
	// Removed are those that were removed before, and came back: their reporters
	// still wrote.
	Removed map[operatorcr.Ref]bool
}

// Leftovers are the reports of ours that nobody will write again, and when to look
// for more of them; zero: not before something changes.
//
// A report goes when there is no such Node any more, or when it is older than the
// Node; when KMS is off; and when it has been stale for a QuietPeriod though its
// node has no pod of the target, or reports in another form. One that was removed
// and came back goes when it is stale: nobody fights with a reporter that writes.
func Leftovers(in *Cleaning) (gone []operatorcr.Report, again time.Time) {
	expected := make(map[string]bool, len(in.Nodes))
	for i := range in.Nodes {
		expected[in.Nodes[i].Name] = !in.Nodes[i].withoutPlugins()
	}
	fresh := make(map[operatorcr.Ref]bool, len(in.Reports))
	for i := range in.Reports {
		r := &in.Reports[i]
		if _, stale := last(r); !in.Now.After(stale) {
			fresh[r.Ref()] = true
		}
	}
	for i := range in.Reports {
		r := &in.Reports[i]
		otherwise := fresh[operatorcr.Ref{Node: r.Node, Form: operatorcr.FormCondition}] && r.Form != operatorcr.FormCondition || fresh[operatorcr.Ref{Node: r.Node, Form: operatorcr.FormTyped}] && r.Form != operatorcr.FormTyped
		due, goes := in.due(r, !expected[r.Node] || otherwise)
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

// due is when a report may go, if it goes at all. idle means that nobody is to
// write it, though its node exists.
func (in *Cleaning) due(r *operatorcr.Report, idle bool) (at time.Time, goes bool) {
	if !r.Ours {
		return time.Time{}, false
	}
	newest, stale := last(r)
	made, exists := in.Made[r.Node]
	switch {
	case in.Off, in.Made != nil && !exists, exists && newest.Before(made):
		if in.Removed[r.Ref()] {
			return stale, true
		}
		return in.Now, true
	case in.Made == nil:
		return time.Time{}, false
	case idle:
		return stale.Add(QuietPeriod), true
	default:
		return time.Time{}, false
	}
}

// last is when the newest entry was made, and the last instant at which any is
// not stale: by the API server's clock, where it took our report at another time
// than the node's clock tells.
func last(r *operatorcr.Report) (newest, stale time.Time) {
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.LastChecked.After(newest) {
			newest = e.LastChecked
		}
		if at := e.StaleAt(); at.After(stale) {
			stale = at
		}
	}
	if len(r.Entries) == 0 { // it cannot be read: what the API server knows stands for it
		assumed := health.Entry{LastChecked: r.Written}
		newest, stale = r.Written, assumed.StaleAt()
	}
	skew, age := r.Written.Sub(newest), stale.Sub(newest)
	if r.Ours && !r.Written.IsZero() && (skew > age/2+behind || skew < -age/4) {
		newest, stale = newest.Add(skew), stale.Add(skew)
	}
	return newest, stale
}
