package rollup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// Reasons of the conditions.
const (
	AsExpected       = "AsExpected"
	AwaitingReports  = "AwaitingReports"
	PluginNotRunning = "PluginNotRunning"
	PluginError      = "PluginError"
	PluginUnhealthy  = "PluginUnhealthy"
	// ReporterNotRunning: a reporter's container cannot start, and nothing is heard of
	// its node.
	ReporterNotRunning = "ReporterNotRunning"
	ReportUnreadable   = "ReportUnreadable"
	ClockSkew          = "ClockSkew"
	ReporterStale      = "ReporterStale"
	ReportsMissing     = "ReportsMissing"
	OtherPlugins       = "OtherPlugins"
	NoPods             = "NoPods"
	KeysDiffer         = "KeysDiffer"
	PluginIll          = "PluginIll"
	WriteKeyUnknown    = "WriteKeyUnknown"
	NoWriteKey         = "NoWriteKey"
)

// Result is a verdict.
type Result struct {
	// Conditions are those to stand on the resource, in a fixed order.
	Conditions []Condition
	// Rows are what they were made of.
	Rows []Row
	// Deadline is when the verdict may be another though nobody writes; zero: never.
	Deadline time.Time
}

// Condition returns one of the conditions.
func (r *Result) Condition(conditionType string) Condition {
	i := slices.IndexFunc(r.Conditions, func(c Condition) bool { return c.Type == conditionType })
	if i < 0 {
		return Condition{}
	}
	return r.Conditions[i]
}

// Same says whether the roll-up's conditions that stand are those of the verdict, and
// no others.
func (r *Result) Same(standing map[string]Condition) bool {
	return !slices.ContainsFunc(Types, func(t string) bool { return standing[t] != r.Condition(t) })
}

// evaluation carries what the conditions share.
type evaluation struct {
	*Input
	rows   []Row
	byNode map[string][]Row
	nodes  []*Node // by name
	again  time.Time
}

// Evaluate rolls up. The order of reports and nodes does not matter.
func Evaluate(in *Input) *Result {
	e := evaluation{Input: in, byNode: make(map[string][]Row, len(in.Nodes))}
	e.rows, e.again = Rows(in.Reports, in.Nodes, in.Now)
	for start := 0; start < len(e.rows); {
		end := start
		for end < len(e.rows) && e.rows[end].Node == e.rows[start].Node {
			end++
		}
		e.byNode[e.rows[start].Node] = e.rows[start:end]
		start = end
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		e.nodes = append(e.nodes, n)
		e.lookAgain(n.QuietUntil)
		for _, f := range n.Faults {
			e.lookAgain(f.Until)
		}
	}
	slices.SortFunc(e.nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })

	result := &Result{Rows: e.rows}
	degraded := e.degraded()
	result.Conditions = []Condition{degraded, e.observed(), e.writeKeyAgreed()}
	for _, optional := range in.Optional {
		switch optional {
		case Available:
			result.Conditions = append(result.Conditions, e.available())
		case Progressing:
			result.Conditions = append(result.Conditions, e.progressing(result.Condition(Observed), result.Condition(WriteKeyAgreed)))
		}
	}
	for i := range result.Conditions {
		result.Conditions[i].Settle(in.Previous, in.Now)
	}
	result.Deadline = e.again
	return result
}

func (e *evaluation) lookAgain(at time.Time) {
	if at.After(e.Now) {
		e.again = earliest(e.again, at)
	}
}

// degraded says whether a plugin is ill. What is known to be ill outweighs what is
// not known.
func (e *evaluation) degraded() Condition {
	c := Condition{Type: Degraded}
	var ill, unknown, missing findings
	quiet := 0
	for _, n := range e.nodes {
		rows := e.byNode[n.Name]
		if n.Leaving {
			quiet++
			continue
		}
		silent, heard, passed := 0, false, false
		fresh := len(rows) > 0
		for _, row := range rows {
			fresh = fresh && (row.Unexpected || row.State == Healthy || row.State.Ill())
			if row.State != Stale || row.Unexpected {
				heard = heard || row.State != Missing && row.State != Stale
				continue
			}
			silent++
		}
		for _, f := range n.Faults {
			reason := PluginNotRunning
			if f.Reporter {
				reason = ReporterNotRunning
			}
			if !f.Reporter || !fresh { // one that crashes and reports all the same is no news
				ill.add(finding{reason: reason, node: n.Name, what: "container " + f.Container + " cannot start", detail: f.Why, look: f.Look})
			}
		}
		for _, row := range rows {
			f := finding{node: n.Name, key: row.KeyID, detail: row.Detail, look: n.Look[row.KeyID]}
			switch {
			case row.Unexpected:
			case row.State == Missing:
				f = finding{reason: AwaitingReports, node: n.Name, what: notYet}
				if heard {
					f.key = row.KeyID
				}
				missing.add(f)
			case n.excused(e.Now) && row.LastChecked.Before(n.PodSince):
				// Another pod said it, whose plugins may have ended before its reporter.
				passed = passed || row.State != Healthy && row.State != Stale
			case row.State.Ill():
				ill.add(f.ill(health.Status(row.State)))
			case row.State == Stale && n.excused(e.Now):
				// What it last said stays.
				if row.Status == health.Unhealthy || row.Status == health.Error {
					ill.add(f.ill(row.Status))
				}
			case row.State == Stale:
				f = finding{reason: ReporterStale, node: n.Name, what: "stopped reporting", look: n.Look[""]}
				if heard {
					f.key, f.what = row.KeyID, "no longer reported"
				}
				unknown.add(f)
			case row.State == Skewed:
				unknown.add(finding{reason: ClockSkew, node: n.Name, what: skewed})
			case row.State == Unreadable && !n.excused(e.Now):
				unknown.add(finding{reason: ReportUnreadable, node: n.Name, what: unreadable, detail: row.Detail})
			}
		}
		if passed || silent > 0 && !heard && n.excused(e.Now) {
			quiet++
		}
	}
	all := slices.Concat(ill, unknown)
	switch {
	case len(ill) > 0:
		c.Status = True
	case len(unknown) > 0:
		c.Status = Unknown
	case len(e.nodes) == 0 || len(missing) > 0:
		c.Status, c.Reason = False, AwaitingReports
		c.Message = "nothing was reported yet"
		if len(missing) > 0 {
			c.Message = missing.text(len(e.nodes))
		}
		return c
	default:
		c.Status, c.Reason = False, AsExpected
		c.Message = "every plugin is healthy on " + allOf(len(e.nodes))
		switch {
		case quiet == len(e.nodes):
			c.Message = "nothing is heard of any node: each is being replaced, or not Ready"
		case quiet > 0:
			c.Message = fmt.Sprintf("every plugin is healthy on %d of %d nodes; the others are being replaced, or not Ready", len(e.nodes)-quiet, len(e.nodes))
		}
		return c
	}
	c.Reason = all.reason(PluginNotRunning, PluginError, PluginUnhealthy, ReporterNotRunning, ReportUnreadable, ClockSkew, ReporterStale)
	e.say(&c, all)
	return c
}

const (
	notYet     = "not reported yet"
	skewed     = "its clock is another, so the age of its reports cannot be told"
	unreadable = "its report cannot be read"
)

// observed says whether every node that should report does, and on what it
// should.
func (e *evaluation) observed() Condition {
	c := Condition{Type: Observed, Status: True, Reason: AsExpected, Message: allOf(len(e.nodes)) + " report"}
	if len(e.nodes) == 1 {
		c.Message = "the one node reports"
	}
	if len(e.nodes) == 0 {
		c.Status, c.Reason, c.Message = False, NoPods, "no pod of the API server is on a node"
		return c
	}
	var all findings
	for _, n := range e.nodes {
		reported, others := 0, false
		for _, row := range e.byNode[n.Name] {
			f := finding{node: n.Name, look: n.Look[""]}
			if row.State != Missing && row.KeyID != "" {
				reported++
			}
			others = others || row.Unexpected
			switch row.State {
			case Missing:
				if reported > 0 {
					others = true
					continue
				}
				f.reason, f.what = ReportsMissing, notYet
			case Stale:
				f.reason, f.what = ReporterStale, "stopped reporting"
				switch {
				case n.Leaving || e.Now.Before(n.QuietUntil):
					f.what, f.look = "silent while its API server is replaced", ""
				case !n.Ready:
					f.what, f.look = "stopped reporting, and the Node is not Ready", ""
				}
			case Skewed:
				f.reason, f.what, f.look = ClockSkew, skewed, ""
			case Unreadable:
				f.reason, f.what, f.detail = ReportUnreadable, unreadable, row.Detail
			default:
				continue
			}
			all.add(f)
		}
		if others {
			all.add(finding{reason: OtherPlugins, node: n.Name, what: fmt.Sprintf("reports on %s, and its pod has %s", keys(reportedKeys(e.byNode[n.Name])), keys(n.Keys))})
		}
	}
	if len(all) > 0 {
		c.Status = False
		c.Reason = all.reason(ReportUnreadable, ClockSkew, ReporterStale, ReportsMissing, OtherPlugins)
		e.say(&c, all)
	}
	return c
}

// reportedKeys are those that a node speaks of.
func reportedKeys(rows []Row) (ids []string) {
	for _, row := range rows {
		if row.State != Missing && row.KeyID != "" {
			ids = append(ids, row.KeyID)
		}
	}
	return ids
}

// available says whether secrets can be written somewhere: not while the write
// key's plugin is known to be ill on every node.
func (e *evaluation) available() Condition {
	c := Condition{Type: Available, Status: True, Reason: AsExpected, Message: "the write key's plugin is not ill everywhere"}
	key := e.writeKey()
	ill := 0
	for _, n := range e.nodes {
		if !e.NoWriteKey && slices.ContainsFunc(e.byNode[n.Name], func(r Row) bool { return r.KeyID == key && r.State.Ill() }) {
			ill++
		}
	}
	if ill > 0 && ill == len(e.nodes) {
		c.Status, c.Reason, c.Message = False, PluginIll, fmt.Sprintf("key %s: its plugin is ill on %s", keyName(key), allOf(ill))
	}
	return c
}

// progressing says whether plugins or keys are being changed.
func (e *evaluation) progressing(observed, agreed Condition) Condition {
	c := Condition{Type: Progressing, Status: False, Reason: AsExpected, Message: "neither plugins nor keys are being changed"}
	var first []string
	mixed := false
	for _, n := range e.nodes {
		if n.Keys == nil {
			continue
		}
		if first == nil {
			first = n.Keys
		}
		mixed = mixed || !slices.Equal(first, n.Keys)
	}
	switch {
	case mixed:
		c.Status, c.Reason, c.Message = True, OtherPlugins, "the nodes' pods have different plugins"
	case observed.Reason == OtherPlugins:
		c.Status, c.Reason, c.Message = True, OtherPlugins, observed.Message
	case agreed.Status == False:
		c.Status, c.Reason, c.Message = True, KeysDiffer, agreed.Message
	}
	return c
}
