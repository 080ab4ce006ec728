package rollup

import (
	"reflect"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Seen is what a process saw of the reports on one resource, and when. The zero Seen has seen nothing. A report's own
// times are by its node's clock, which may be wrong: they are not used, except that a new one is a change.
type Seen struct {
	last map[place]Report // nil: nothing was seen yet
	// Resumed is what an earlier process saw, by node.
	Resumed map[string]Silence
}

// place is where a report is: a new one there replaces the one before.
type place struct {
	node string
	form operatorstatus.Form
}

// Silence is for how long a report has been seen unchanged, in seconds. It is saved for the next process: otherwise a
// process that restarts often would find no stale report.
type Silence struct {
	Report string `json:"report"` // its hash
	For    int64  `json:"for"`
}

// Silences returns a Silence for each node whose report has been unchanged for a third of the time until it is stale,
// or more. For grows in these steps until MaxExcuse after that: then nothing depends on it. next is when that may
// change by time alone.
func (s *Seen) Silences(now time.Time) (silent map[string]Silence, next time.Time) {
	silent = map[string]Silence{}
	for at, r := range s.last {
		if at.form != operatorstatus.FormCondition || len(r.Report.Entries) == 0 {
			continue
		}
		stale, since := r.Validity()+outagePeriod, time.Time{} // when the report last changed
		for i := range r.Entries {
			since = Latest(since, r.Entries[i].Changed)
		}
		step := stale / 3
		kept := min(now.Sub(since).Truncate(step), stale+MaxExcuse)
		if due := since.Add(kept + step); due.After(now) && (next.IsZero() || due.Before(next)) {
			next = due
		}
		if kept > 0 {
			silent[at.node] = Silence{HashOf(r.Report.Entries), int64(kept / time.Second)}
		}
	}
	return silent, next
}

// HashOf identifies the content of a report, as Silence does.
func HashOf(entries []contract.Entry) string {
	message, _ := contract.EncodeMessage(entries) // it was decoded
	return contract.FileHash([]byte(message))
}

// Observe adds the reports as they are now to what was seen. unanswered is when a request last had no answer. That
// outage began after the resource was last shown.
func (s *Seen) Observe(now, shown, unanswered time.Time, reports []operatorstatus.Report) (all []Report) {
	before, first := s.last, s.last == nil
	s.last = map[place]Report{}
	for _, r := range reports {
		at := place{r.Node, r.Form}
		was := before[at]
		report := Report{Report: r, Overwritten: was.before(r.Reporter())}
		entries := r.Entries
		if r.Err != nil {
			entries = []contract.Entry{{Detail: contract.CleanDetail(r.Err.Error())}}
		}
		for _, entry := range entries {
			e := was.next(entry, now)
			e.Standing = first || e.Standing
			e.Outage = e.Outage || !unanswered.Before(e.Changed) && shown.Before(e.FreshUntil())
			report.Entries = append(report.Entries, e)
		}
		if first && r.Form == operatorstatus.FormCondition {
			s.resume(&report, now)
		}
		s.last[at] = report
		all = append(all, report)
	}
	return all
}

// resume continues the Silence that an earlier process saw, if the report is still the same.
func (s *Seen) resume(r *Report, now time.Time) {
	was, silent := s.Resumed[r.Node]
	if !silent || was.Report != HashOf(r.Report.Entries) {
		return
	}
	for i := range r.Entries {
		r.Entries[i].Changed = now.Add(-time.Duration(was.For) * time.Second)
	}
}

// before returns the last report of another reporter at the same place: this one, or what it overwrote. Of a report
// without entries the reporter is not known.
func (r *Report) before(reporter string) *Report {
	switch {
	case reporter == "":
		return nil
	case r.Reporter() == "", r.Reporter() == reporter:
		return r.Overwritten
	}
	other := *r
	other.Overwritten = nil
	return &other
}

// next returns an entry with what was seen of it. One with another socket is about another plugin.
func (r *Report) next(entry contract.Entry, now time.Time) Entry {
	e := Entry{Entry: entry, Changed: now}
	at := slices.IndexFunc(r.Entries, func(was Entry) bool { return was.KeyID == entry.KeyID })
	if at >= 0 && reflect.DeepEqual(r.Entries[at].Entry, entry) {
		return r.Entries[at]
	}
	if at >= 0 && r.Entries[at].Socket == entry.Socket {
		e.Named, e.NamedAt = r.Entries[at].Named, r.Entries[at].NamedAt
	}
	if entry.Status == contract.Healthy && entry.KEKID != "" {
		e.Named, e.NamedAt = entry.KEKID, now
	}
	return e
}
