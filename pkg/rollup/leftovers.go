package rollup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/health"
)

// QuietPeriod is for how long a node may be silent while its API server is
// replaced: longer than a kube-apiserver takes to end in order and its successor
// to start.
const QuietPeriod = 3 * time.Minute

// Cleaning is what a decision about leftovers stands on.
type Cleaning struct {
	Now     time.Time
	Reports []Report
	// Off says that nobody is to report any more.
	Off bool
	// Nodes are those that should report.
	Nodes []Node
	// Made is when each Node that exists was made; nil while it is not known.
	Made map[string]time.Time
	// Removed are those that were removed before, and came back: their reporters
	// still wrote.
	Removed map[Ref]bool
}

// Ref names a report.
type Ref struct {
	Node string
	Form Form
}

// Ref is the report's.
func (r *Report) Ref() Ref { return Ref{r.Node, r.Form} }

// Leftovers are the reports of ours that nobody will write again, and when to look
// for more of them; zero: not before something changes.
//
// A report goes when there is no such Node any more, or when it is older than the
// Node; when KMS is off; and when it has been stale for a QuietPeriod though its
// node has no pod of the target, or reports in another form. One that was removed
// and came back goes when it is stale: nobody fights with a reporter that writes.
func Leftovers(in *Cleaning) (gone []Report, again time.Time) {
	expected := make(map[string]bool, len(in.Nodes))
	for i := range in.Nodes {
		expected[in.Nodes[i].Name] = true
	}
	fresh := make(map[Ref]bool, len(in.Reports))
	for i := range in.Reports {
		r := &in.Reports[i]
		if _, stale := r.last(); !in.Now.After(stale) {
			fresh[r.Ref()] = true
		}
	}
	for i := range in.Reports {
		r := &in.Reports[i]
		otherwise := fresh[Ref{r.Node, FormCondition}] && r.Form != FormCondition || fresh[Ref{r.Node, FormTyped}] && r.Form != FormTyped
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

// due is when a report may go, if it goes at all. idle says that nobody is to
// write it, though its node exists.
func (in *Cleaning) due(r *Report, idle bool) (at time.Time, goes bool) {
	if !r.Ours {
		return time.Time{}, false
	}
	newest, stale := r.last()
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
func (r *Report) last() (newest, stale time.Time) {
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

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Removal is the JSON patch that takes reports, as they were read, off the
// resource, and nothing else: it fails when anything was written since.
func (r *Resource) Removal(gone []Report) []byte {
	patch := []operation{{"test", "/metadata/resourceVersion", r.Version}}
	var conditions, elements []place
	for _, report := range gone {
		for _, at := range report.at {
			if report.Form == FormCondition {
				conditions = append(conditions, place{at, report.Node})
			} else {
				elements = append(elements, place{at, report.Node})
			}
		}
	}
	backwards := func(a, b place) int { return b.at - a.at }
	slices.SortFunc(conditions, backwards)
	for _, p := range conditions {
		path := "/status/conditions/" + strconv.Itoa(p.at)
		patch = append(patch, operation{"test", path + "/type", health.ConditionType(p.node)}, operation{Op: "remove", Path: path})
	}
	// The schema takes no empty list, and no parent without one.
	parent := "/" + strings.Join(r.typed.path, "/")
	list := parent + "/healthReports"
	slices.SortFunc(elements, backwards)
	for _, p := range elements {
		path := fmt.Sprintf("%s/%d", list, p.at)
		patch = append(patch, operation{"test", path + "/nodeName", p.node})
		if len(elements) < r.typed.elements {
			patch = append(patch, operation{Op: "remove", Path: path})
		}
	}
	switch {
	case len(elements) == 0 || len(elements) < r.typed.elements:
	case r.typed.siblings:
		patch = append(patch, operation{Op: "remove", Path: list})
	default:
		patch = append(patch, operation{Op: "remove", Path: parent})
	}
	raw, err := applybody.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("marshal a patch of strings: %v", err))
	}
	return raw
}

// place of a report in its list.
type place struct {
	at   int
	node string
}
