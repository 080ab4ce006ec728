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
	last   map[place][]Report // without a keyID: the last report of each of its reporters, the newest first
	// Resumed is what an earlier process saw, by node.
	Resumed map[string]Silence
}

// Silence is for how long a report has been seen unchanged, in seconds. A process keeps it for the next one: else one
// that restarts often would find no silence.
type Silence struct {
	Report string `json:"report"` // its hash
	For    int64  `json:"for"`
}

// silenceStep is how often the silence of a report is kept anew that is stale.
const silenceStep = 10 * time.Minute

// Silences are the reports by nodes that are unchanged for a third of the time until they are stale, two thirds, all
// of it, and each silenceStep more; and when that may change by time alone.
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

// resume counts the silence of a report on.
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

// overwritten are the last reports of other reporters, of which each had the same place. Whose a report without
// entries is, is not known.
func overwritten(last []Report, reporter string) (others []Report) {
	for _, r := range last {
		if reporter != "" && r.Reporter != "" && r.Reporter != reporter && len(others) < maxReporters-1 {
			r.Overwritten = nil
			others = append(others, r)
		}
	}
	return others
}

// next is an entry as it is now, after what was seen at its place before. At another socket is another plugin.
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

// Dated are signed reports for a reader that looks once, and so cannot see a change: the newest entry of a node's own
// reporter is as old as its write by the API server's clock, others by their own times.
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
