package rollup

import (
	"reflect"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Seen is what a process saw of the reports on one resource, and when. The zero Seen has seen nothing. A report's own
// times are by its node's clock, which may be wrong: they are not used, except that a new one is a change.
type Seen struct {
	places map[place]Entry
	errors map[place]sight
	last   map[place][]Report // by places without a keyID: the last report of each reporter, the newest first
	// Resumed is what an earlier process saw, by node.
	Resumed map[string]Silence
}

// Silence is for how long a report has been seen unchanged, in seconds. It is saved for the next process: otherwise a
// process that restarts often would find no stale report.
type Silence struct {
	Report string `json:"report"` // its hash
	For    int64  `json:"for"`
}

// silenceStep is how often the Silence of a stale report is saved again.
const silenceStep = 10 * time.Minute

// Silences returns a Silence for each node whose report has been unchanged for a third of the time until it is stale,
// or more. For grows in steps: thirds of that time, then silenceStep. next is when that may change by time alone.
func (s *Seen) Silences(now time.Time) (silent map[string]Silence, next time.Time) {
	silent = map[string]Silence{}
	for at, reports := range s.last {
		r := &reports[0]
		if at.form != operatorstatus.FormCondition || len(r.Entries) == 0 {
			continue
		}
		var stale time.Duration
		for i := range r.Entries {
			stale = max(stale, r.Entries[i].Validity()+standingPeriod)
		}
		since, step := r.LastChange(), stale/3
		unchanged := now.Sub(since)
		kept := unchanged.Truncate(step)
		if unchanged >= stale {
			step = silenceStep
			kept = stale + (unchanged - stale).Truncate(step)
		}
		if due := since.Add(kept + step); next.IsZero() || due.Before(next) {
			next = due
		}
		if kept > 0 {
			silent[at.node] = Silence{hashOf(r), int64(kept / time.Second)}
		}
	}
	return silent, next
}

func hashOf(r *Report) string {
	entries := make([]contract.Entry, len(r.Entries))
	for i := range r.Entries {
		entries[i] = r.Entries[i].Entry
	}
	message, _ := contract.EncodeMessage(entries) // it was decoded
	return contract.FileHash([]byte(message))
}

// maxReporters is how many reporters of one node are remembered.
const maxReporters = 4

// place is where an entry is: a new one there replaces the one before.
type place struct {
	node  string
	form  operatorstatus.Form
	keyID string
}

// sight is a report that cannot be read.
type sight struct {
	text string
	at   time.Time
}

// Observe adds the reports as they are now to what was seen.
func (s *Seen) Observe(now time.Time, reports []operatorstatus.Report) []Report {
	first := s.places == nil
	before, failed, last := s.places, s.errors, s.last
	s.places, s.errors, s.last = map[place]Entry{}, map[place]sight{}, map[place][]Report{}
	all := make([]Report, 0, len(reports))
	for i := range reports {
		r := &reports[i]
		report := Report{Node: r.Node, Form: r.Form, Err: r.Err, Reporter: r.Reporter()}
		at := place{r.Node, r.Form, ""}
		if r.Err != nil {
			was := failed[at]
			if text := r.Err.Error(); was.text != text || was.at.IsZero() {
				was = sight{text, now}
			}
			s.errors[at], report.Changed = was, was.at
		}
		for _, entry := range r.Entries {
			at.keyID = entry.KeyID
			was, had := before[at]
			e := next(was, had, entry, now)
			e.Standing = first || e.Standing
			s.places[at] = e
			report.Entries = append(report.Entries, e)
		}
		at.keyID = ""
		if first && r.Form == operatorstatus.FormCondition {
			s.resume(&report, now)
		}
		report.Overwritten = overwritten(last[at], report.Reporter)
		s.last[at] = append([]Report{report}, report.Overwritten...)
		all = append(all, report)
	}
	return all
}

// resume continues the Silence that an earlier process saw, if the report is still the same.
func (s *Seen) resume(r *Report, now time.Time) {
	was, silent := s.Resumed[r.Node]
	if !silent || len(r.Entries) == 0 || was.Report != hashOf(r) {
		return
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		e.Changed = now.Add(-time.Duration(was.For) * time.Second)
		s.places[place{r.Node, r.Form, e.KeyID}] = *e
	}
}

// overwritten returns the last reports that other reporters wrote at the same place. A report without entries is left
// out, since its reporter is not known.
func overwritten(last []Report, reporter string) (others []Report) {
	for _, r := range last {
		if reporter != "" && r.Reporter != "" && r.Reporter != reporter && len(others) < maxReporters-1 {
			r.Overwritten = nil
			others = append(others, r)
		}
	}
	return others
}

// next returns an entry with what was seen of it, given the one seen at its place before. One with another socket is
// about another plugin.
func next(was Entry, had bool, entry contract.Entry, now time.Time) Entry {
	e := was
	if !had || !reflect.DeepEqual(was.Entry, entry) {
		e = Entry{Entry: entry, Changed: now}
		if entry.Socket == was.Socket {
			e.Named, e.NamedAt = was.Named, was.NamedAt
		}
		if entry.Status == contract.Healthy && entry.KEKID != "" {
			e.Named, e.NamedAt = entry.KEKID, now
		}
	}
	return e
}

// Dated returns signed reports for a reader that reads once, and so cannot see a change. In a report of a node's own
// reporter the newest entry gets the time of the write, by the API server's clock, and others are shifted as much.
// Entries of other reports keep their times.
func Dated(reports []operatorstatus.Report) (all []Report) {
	for i := range reports {
		r := &reports[i]
		report := Report{Node: r.Node, Form: r.Form, Err: r.Err, Changed: r.Written, Reporter: r.Reporter()}
		var newest time.Time
		for _, e := range r.Entries {
			if e.LastChecked.After(newest) {
				newest = e.LastChecked
			}
		}
		for _, e := range r.Entries {
			at := e.LastChecked
			if r.Own && !r.Written.IsZero() {
				at = at.Add(r.Written.Sub(newest))
			}
			report.Entries = append(report.Entries, Entry{Entry: e, Changed: at})
		}
		all = append(all, report)
	}
	return all
}
