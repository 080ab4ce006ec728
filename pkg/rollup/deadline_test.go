package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func in(seconds int) time.Time   { return ago(-seconds) }
func just(seconds int) time.Time { return in(seconds).Add(1) } // after the last instant at which it holds
func only(n Node) []Node         { return []Node{n} }
func fault(until time.Time) Node {
	n := on("a", "2")
	n.Faults = []Fault{{Container: "kms-2", Why: "ContainerCreating", Until: until}}
	return n
}

var deadlines = []struct {
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
	{"no interval is 30 seconds", abc("2")[:1], list{thirdParty("a", every(1, healthy("2", 5)))}, just(valid - 5)},
	{"the first of all nodes", abc("2"), but(each(healthy("2", 5)), from("b", healthy("2", 50))), just(valid - 50)},
	{"the first of all keys", abc("2", "1")[:1], list{from("a", healthy("2", 5), healthy("1", 50))}, just(valid - 50)},
	{"an unhealthy one becomes stale, too", abc("2")[:1], list{from("a", inError("2", 7, "refused"))}, just(valid - 7)},
	{"the last instant", abc("2")[:1], list{from("a", healthy("2", valid))}, just(0)},
	{"stale stays so", abc("2")[:1], list{from("a", healthy("2", valid+1))}, time.Time{}},
	{"unreadable stays so", abc("2")[:1], list{unreadable("a")}, time.Time{}},
	{"stale, and the typed one unhealthy until it is stale, too", abc("2")[:1],
		list{from("a", healthy("2", 999)), thirdParty("a", unhealthy("2", 5, "x"))}, just(valid - 5)},
	{"a clock ahead: when it may be right", abc("2")[:1], list{from("a", healthy("2", -100))}, in(70)},
	{"QuietPeriod ends", only(renewed(60, on("a", "2"))), list{by("u", from("a", healthy("2", 999)))}, in(120)},
	{"QuietPeriod ends just now", only(renewed(180, on("a", "2"))), list{by("u", from("a", healthy("2", 999)))},
		time.Time{}},
	{"QuietPeriod ends, and before it an entry is stale", only(renewed(60, on("a", "2"))),
		list{from("a", every(1, healthy("2", 1)))}, just(contract.StaleIntervals - 1)},
	{"QuietPeriod ends before an entry is stale", only(renewed(100, on("a", "2"))), list{from("a", healthy("2", 5))},
		in(80)},
	{"a container has time to start", only(fault(in(20))), list{from("a", healthy("2", 5))}, in(20)},
	{"a container had time to start", only(fault(in(-20))), list{from("a", healthy("2", 5))}, just(valid - 5)},
	{"a node not Ready has no time of its own", only(down(on("a", "2"))), list{from("a", inError("2", 999, "x"))},
		time.Time{}},
}

func TestDeadlines(t *testing.T) {
	for _, tt := range deadlines {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Nodes: tt.nodes, Reports: tt.reports}).Deadline
			if !got.Equal(tt.want) {
				t.Errorf("in %s, want in %s", got.Sub(now), tt.want.Sub(now))
			}
		})
	}
}
