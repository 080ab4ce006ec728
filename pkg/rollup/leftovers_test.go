package rollup

import (
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func made(age int, names ...string) func(string) (time.Time, bool) {
	return func(name string) (time.Time, bool) { return ago(age), slices.Contains(names, name) }
}

var abcMade, never = made(7200, "a", "b", "c"), time.Time{}
var expecting = Cleaning{Nodes: abc("2"), Node: abcMade}
var removed = map[string]time.Time{"z": ago(600), "a": ago(600)}
var longStale = healthy("2", valid+1+180) // for a QuietPeriod and a second

var leftovers = []struct {
	name    string
	in      Cleaning
	reports []operatorcr.Report
	gone    []string
	again   time.Time
}{
	// Reports of nodes that should report are kept, whatever their content.
	{"all report", expecting, each(fresh), nil, never},
	{"one is stale for long", expecting, but(each(fresh), from("b", healthy("2", 7000))), nil, never},
	{"one is unreadable", expecting, but(each(fresh), written(7000, unreadable("b"))), nil, never},
	{"nothing is there", expecting, nil, nil, never},

	// There is no such Node.
	{"a Node is gone", expecting, append(each(fresh), from("z", healthy("2", 50))), []string{"z Condition"}, never},
	{"a Node is gone, and a third-party report of it stays", expecting,
		append(each(fresh), from("z", fresh), thirdParty("z", fresh)), []string{"z Condition"}, never},
	{"a Node is gone, and its report unreadable", expecting, append(each(fresh), unreadable("z")), []string{"z Condition"},
		never},
	{"a Node is gone while its pod is not yet", Cleaning{Nodes: append(abc("2"), on("z", "2")), Node: abcMade},
		append(each(fresh), from("z", fresh)), []string{"z Condition"}, never},
	{"it came back: its reporter still writes", Cleaning{Nodes: abc("2"), Node: abcMade, Removed: removed},
		append(each(fresh), from("z", fresh)), nil, in(valid - 5)},
	{"it came back, and its reporter has ended", Cleaning{Nodes: abc("2"), Node: abcMade, Removed: removed},
		append(each(fresh), from("z", healthy("2", valid+1))), []string{"z Condition"}, never},
	{"it came back, unreadable", Cleaning{Nodes: abc("2"), Node: abcMade, Removed: removed},
		append(each(fresh), unreadable("z")), nil, in(valid - 5)},
	{"Nodes are not known", Cleaning{Nodes: abc("2")},
		append(each(fresh), from("z", longStale), thirdParty("a", longStale)), nil, never},
	{"there are no Nodes", Cleaning{Node: made(0)}, each(fresh)[:1], []string{"a Condition"}, never},

	// The Node was created again with the same name.
	{"older than its Node", Cleaning{Nodes: abc("2"), Node: made(60, "a", "b", "c")},
		but(each(fresh), from("b", healthy("2", 61))), []string{"b Condition"}, never},
	{"as old as its Node", Cleaning{Nodes: abc("2"), Node: made(60, "a", "b", "c")},
		but(each(fresh), from("b", healthy("2", 60))), nil, never},
	{"one entry is older than its Node", Cleaning{Nodes: abc("2", "1")[:1], Node: made(60, "a")},
		list{from("a", fresh, healthy("1", 90))}, nil, never},
	{"older than its Node, and came back", Cleaning{Nodes: abc("2")[:1], Node: made(60, "a"), Removed: removed},
		list{from("a", healthy("2", 61))}, nil, in(valid - 61)},

	// KMS is off.
	{"off", Cleaning{Off: true, Node: abcMade}, append(each(fresh), thirdParty("a", fresh)),
		[]string{"a Condition", "b Condition", "c Condition"}, never},
	{"off, and Nodes are not known", Cleaning{Off: true}, each(fresh)[:1], []string{"a Condition"}, never},
	{"off, and nodes that would report", Cleaning{Off: true, Nodes: abc("2"), Node: abcMade}, each(fresh)[:1],
		[]string{"a Condition"}, never},
	{"off, one came back, one is left", Cleaning{Off: true, Node: abcMade, Removed: removed}, each(fresh)[:2],
		[]string{"b Condition"}, in(valid - 5)},

	// Its node has no pod of the target.
	{"no pod, still fresh", Cleaning{Nodes: abc("2")[:2], Node: abcMade}, each(fresh), nil, in(valid - 5 + 180)},
	{"no pod, not stale for long", Cleaning{Nodes: abc("2")[:2], Node: abcMade},
		but(each(fresh), from("c", healthy("2", valid+1))), nil, in(179)},
	{"no pod, stale for a QuietPeriod but a second", Cleaning{Nodes: abc("2")[:2], Node: abcMade},
		but(each(fresh), from("c", healthy("2", valid+179))), nil, in(1)},
	{"no pod, stale for a QuietPeriod", Cleaning{Nodes: abc("2")[:2], Node: abcMade},
		but(each(fresh), from("c", longStale)), []string{"c Condition"}, never},
	{"no pod, unreadable for long", Cleaning{Nodes: abc("2")[:2], Node: abcMade},
		but(each(fresh), written(valid+180, unreadable("c"))), []string{"c Condition"}, never},
	{"no pod, an interval of a second", Cleaning{Nodes: abc("2")[:2], Node: abcMade},
		but(each(fresh), from("c", every(1, healthy("2", contract.StaleIntervals+1)))), nil, in(179)},

	// Its node should report: it stays, also beside fresh typed reports.
	{"stale beside a third-party reporter", expecting, list{from("a", longStale), thirdParty("a", fresh)}, nil, never},
	{"of the pod before, beside a third-party reporter", Cleaning{Nodes: []Node{since(180, on("a", "2"))}, Node: abcMade},
		list{from("a", every(3600, healthy("2", 900))), thirdParty("a", fresh)}, nil, never},

	// Reports of third-party writers are not removed.
	{"third-party: Node gone, off, older, idle", Cleaning{Off: true, Node: made(1, "a")},
		list{thirdParty("a", longStale), thirdParty("z", longStale)}, nil, never},
	{"its writer is not known", Cleaning{Off: true, Node: abcMade},
		list{{Node: "z", Form: operatorcr.FormCondition, Entries: []contract.Entry{longStale}}}, nil, never},
}

func TestLeftovers(t *testing.T) {
	for _, tt := range leftovers {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now, tt.in.Reports = now, tt.reports
			gone, again := Leftovers(&tt.in)
			var got []string
			for _, r := range gone {
				got = append(got, r.Node+" "+string(r.Form))
			}
			if !slices.Equal(got, tt.gone) {
				t.Errorf("%q are removed, want %q", got, tt.gone)
			}
			if !again.Equal(tt.again) {
				t.Errorf("again in %s, want in %s", again.Sub(now), tt.again.Sub(now))
			}
			// Until then no other report is removed, if nothing is written.
			for _, at := range []time.Time{again.Add(-1), now.Add(1e17)} {
				if tt.in.Now = at; again.IsZero() || at.Before(again) {
					if more, _ := Leftovers(&tt.in); at.After(now) && len(more) > len(gone) {
						t.Errorf("at %s, before %s, %d go", at, again, len(more))
					}
				}
			}
		})
	}
}
