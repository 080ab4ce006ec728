package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestDeadlines(t *testing.T) {
	in := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	just := func(seconds int) time.Time { return in(seconds).Add(1) } // after the last instant at which it holds
	one := func(n Node) []Node { return []Node{n} }
	fault := func(until time.Time) Node {
		n := on("a", "2")
		n.Faults = []Fault{{Container: "kms-2", Why: "ContainerCreating", Until: until}}
		return n
	}
	for _, tt := range []struct {
		name    string
		nodes   []Node
		reports []operatorcr.Report
		want    time.Time
	}{
		{"nothing", nil, nil, time.Time{}},
		{"nothing reported", abc("2"), nil, in(300)},
		{"stale after the last check", abc("2"), each(healthy("2", 5)), just(valid - 5)},
		{"an interval of a second", abc("2"), each(every(1, healthy("2", 1))), just(contract.StaleIntervals - 1)},
		{"an interval of an hour", abc("2"), each(every(3600, healthy("2", 5))), just(contract.StaleIntervals*3600 - 5)},
		{"no interval is 30 seconds", abc("2")[:1], []operatorcr.Report{thirdParty("a", every(1, healthy("2", 5)))}, just(valid - 5)},
		{"the first of all nodes", abc("2"), but(each(healthy("2", 5)), from("b", healthy("2", 50))), just(valid - 50)},
		{"the first of all keys", abc("2", "1")[:1], []operatorcr.Report{from("a", healthy("2", 5), healthy("1", 50))}, just(valid - 50)},
		{"an unhealthy one becomes stale, too", abc("2")[:1], []operatorcr.Report{from("a", inError("2", 7, "refused"))}, just(valid - 7)},
		{"the last instant", abc("2")[:1], []operatorcr.Report{from("a", healthy("2", valid))}, just(0)},
		{"stale stays so", abc("2")[:1], []operatorcr.Report{from("a", healthy("2", valid+1))}, time.Time{}},
		{"unreadable stays so", abc("2")[:1], []operatorcr.Report{unreadable("a")}, time.Time{}},
		{"stale, and the typed one unhealthy until it is stale, too", abc("2")[:1], []operatorcr.Report{from("a", healthy("2", 999)), thirdParty("a", unhealthy("2", 5, "x"))}, just(valid - 5)},
		{"a clock ahead: when it may be right", abc("2")[:1], []operatorcr.Report{from("a", healthy("2", -100))}, in(70)},
		{"QuietPeriod ends", one(renewed(60, on("a", "2"))), []operatorcr.Report{by("u", from("a", healthy("2", 999)))}, in(120)},
		{"QuietPeriod ends just now", one(renewed(180, on("a", "2"))), []operatorcr.Report{by("u", from("a", healthy("2", 999)))}, time.Time{}},
		{"QuietPeriod ends, and before it an entry is stale", one(renewed(60, on("a", "2"))), []operatorcr.Report{from("a", every(1, healthy("2", 1)))}, just(contract.StaleIntervals - 1)},
		{"QuietPeriod ends before an entry is stale", one(renewed(100, on("a", "2"))), []operatorcr.Report{from("a", healthy("2", 5))}, in(80)},
		{"a container has time to start", one(fault(in(20))), []operatorcr.Report{from("a", healthy("2", 5))}, in(20)},
		{"a container had time to start", one(fault(in(-20))), []operatorcr.Report{from("a", healthy("2", 5))}, just(valid - 5)},
		{"a node not Ready has no time of its own", one(down(on("a", "2"))), []operatorcr.Report{from("a", inError("2", 999, "x"))}, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Nodes: tt.nodes, Reports: tt.reports}).Deadline
			if !got.Equal(tt.want) {
				t.Errorf("in %s, want in %s", got.Sub(now), tt.want.Sub(now))
			}
		})
	}
}

// A reporter that stops is detected at the deadline, and not a nanosecond before.
func TestAStoppedReporterIsDetectedAtTheDeadlineAndNotBefore(t *testing.T) {
	for _, seconds := range []int{1, 10, 30, 60, 3600} {
		entry := every(seconds, healthy("2", 1))
		in := Input{Now: now, Nodes: abc("2"), Reports: but(each(every(3600, healthy("2", 0))), from("b", entry))}
		first := Evaluate(&in)
		if want := entry.StaleAt().Add(1); first.Deadline != want {
			t.Fatalf("interval %ds: deadline %s, want %s", seconds, first.Deadline, want)
		}
		in.Previous = standing(first.Conditions)
		for at, want := range map[time.Time]string{
			entry.StaleAt().Add(-time.Second): fine,
			entry.StaleAt():                   fine,
			first.Deadline:                    stale,
		} {
			in.Now = at
			c := Evaluate(&in).Condition(contract.PluginsDegraded)
			if got := c.Status + " " + c.Reason; seconds < 3600 && got != want {
				t.Errorf("interval %ds, %s after the entry is stale: %s, want %s", seconds, at.Sub(entry.StaleAt()), got, want)
			}
			moved := c.LastTransitionTime.After(first.Condition(contract.PluginsDegraded).LastTransitionTime)
			if moved != (want == stale) {
				t.Errorf("interval %ds: since %s", seconds, c.LastTransitionTime)
			}
		}
	}
}

// A clock ahead becomes valid, then its last entry stale: each at its deadline.
func TestDeadlinesLeadToEveryState(t *testing.T) {
	in := Input{Now: now, Nodes: abc("2")[:1], Reports: []operatorcr.Report{from("a", healthy("2", -100))}}
	var got []string
	for range 10 {
		result := Evaluate(&in)
		c := result.Condition(contract.PluginsDegraded)
		got = append(got, c.Status+" "+c.Reason)
		if result.Deadline.IsZero() {
			break
		}
		if !result.Deadline.After(in.Now) {
			t.Fatalf("at %s the deadline is %s", in.Now, result.Deadline)
		}
		in.Now, in.Previous = result.Deadline, standing(result.Conditions)
	}
	want := []string{stale, fine, stale}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%q, want %q", got, want)
	}
	if at := (contract.Entry{LastChecked: now.Add(100 * time.Second), Interval: 30 * time.Second}).StaleAt().Add(1); in.Now != at {
		t.Errorf("stale at %s, want %s", in.Now, at)
	}
}
