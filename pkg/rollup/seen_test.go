package rollup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// wrote returns a report as a node's reporter has written it, with times by its own clock.
func wrote(node string, entries ...contract.Entry) operatorstatus.Report {
	return operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition, Entries: entries}
}

func TestAgeIsSinceAChangeWasSeen(t *testing.T) {
	e := healthy("2", 0).Entry
	seen, day := &Seen{}, 24*time.Hour
	steps := []struct {
		at       int // seconds
		checked  time.Duration
		kekID    string
		changed  int
		standing bool
	}{
		{0, 0, "k-7", 0, true},
		{30, 0, "k-7", 0, true},
		{60, day, "k-8", 60, false},
		{61, day, "k-8", 60, false},
		{90, -day, "k-8", 90, false}, // after a step back of the clock, too, a write is a change
	}
	for _, step := range steps {
		e.LastChecked, e.KEKID = now.Add(step.checked), step.kekID
		got := seen.Observe(in(step.at), []operatorstatus.Report{wrote("a", e)})[0].Entries[0]
		if !got.Changed.Equal(in(step.changed)) || got.Standing != step.standing || got.Named != step.kekID {
			t.Errorf("at %d s: changed at %s, standing %t, named %q, want %+v", step.at, got.Changed, got.Standing, got.Named, step)
		}
	}
	e.Status, e.KEKID, e.Reason = contract.Error, "", contract.Timeout
	if got := seen.Observe(in(120), []operatorstatus.Report{wrote("a", e)})[0].Entries[0]; got.Named != "k-8" || !got.NamedAt.Equal(in(90)) {
		t.Errorf("after a time-out it named %q at %s, want k-8 at %s", got.Named, got.NamedAt, in(90))
	}
	seen.Observe(in(150), nil)
	if got := seen.Observe(in(180), []operatorstatus.Report{wrote("a", e)})[0].Entries[0]; got.Standing || got.Named != "" || !got.Changed.Equal(in(180)) {
		t.Errorf("an entry that came back: %+v", got)
	}
}

func TestAgeOfAReportThatCannotBeReadIsSinceItsError(t *testing.T) {
	seen := &Seen{}
	for _, step := range []struct {
		at      int
		err     string
		changed int
	}{{0, "x", 0}, {30, "x", 0}, {60, "y", 60}} {
		r := operatorstatus.Report{Node: "a", Form: operatorstatus.FormCondition, Err: errors.New(step.err)}
		got := seen.Observe(in(step.at), []operatorstatus.Report{r})[0]
		if !got.Changed.Equal(in(step.changed)) || !got.StaleFrom().Equal(in(step.changed+120)) {
			t.Errorf("at %d s: changed at %s, stale from %s", step.at, got.Changed, got.StaleFrom())
		}
	}
}

// Two API server pods on one node, each with a sidecar, overwrite each other's condition. The last report of the pod
// that counts decides the verdict.
func TestReportsThatOverwriteEachOtherDoNotAlternateTheVerdict(t *testing.T) {
	node := on("a", "2")
	node.Writers = []string{"counts"}
	report := func(reporter string, e Entry) operatorstatus.Report {
		e.Reporter = reporter
		return wrote("a", e.Entry)
	}
	seen := &Seen{}
	verdict := func(at int, r operatorstatus.Report) string {
		c := Evaluate(&Input{Now: in(at), Wall: in(at), Reports: seen.Observe(in(at), []operatorstatus.Report{r}),
			Nodes: []Node{node}}).Conditions[contract.PluginsDegraded]
		return c.Status + " " + c.Reason
	}
	const fine = "False AsExpected"
	verdict(0, report("counts", healthy("2", 0)))
	for at := 30; at < 600; at += 30 {
		e := healthy("2", -at)
		if got := verdict(at, report("counts", e)); got != fine {
			t.Errorf("at %d s: its own report: %s", at, got)
		}
		if got := verdict(at+15, report("other", inError("2", -at, "sealed"))); got != fine {
			t.Errorf("at %d s: overwritten: %s", at, got)
		}
	}
	if got := verdict(600, report("counts", inError("2", -600, "sealed"))); got != "True PluginError" {
		t.Errorf("unhealthy: %s", got)
	}
	if got := verdict(601, report("other", healthy("2", -600))); got != "True PluginError" {
		t.Errorf("unhealthy, and overwritten: %s", got)
	}
	if got := verdict(800, report("other", healthy("2", -700))); got != "True PluginError" {
		t.Errorf("unhealthy, and overwritten for longer than its report is valid: %s", got)
	}
	node.Keys = []string{}
	if got := verdict(830, wrote("a")); got != "False NoPlugins" {
		t.Errorf("a report without entries: %s", got)
	}
	if got := verdict(831, report("other", inError("3", -831, "sealed"))); got != "False NoPlugins" {
		t.Errorf("another's after it: %s", got)
	}
}

// Each process ends before a report could become stale. The silence is still found, because processes hand it on.
func TestRestartsHideNoSilence(t *testing.T) {
	const life = 70 // seconds
	last := map[string]contract.Entry{"a": healthy("2", 0).Entry, "b": healthy("2", 0).Entry, "c": healthy("2", 0).Entry}
	previous, kept, found := map[string]operatorstatus.Condition{}, map[string]Silence{}, -1
	for process := range 8 {
		seen := &Seen{Resumed: kept}
		for second := 0; second < life; second += 10 {
			at := process*life + second
			var reports []operatorstatus.Report
			for _, node := range []string{"a", "b", "c"} {
				e := last[node]
				if node != "b" { // b is silent
					e.LastChecked = in(at / 30 * 30)
				}
				reports = append(reports, wrote(node, e))
			}
			previous = Evaluate(&Input{Now: in(at), Wall: in(at), Reports: seen.Observe(in(at), reports), Nodes: abc("2"),
				Previous: previous}).Conditions
			silent, next := seen.Silences(in(at))
			if !next.After(in(at)) {
				t.Errorf("at %d s: the next change is due at %s", at, next.Sub(now))
			}
			if len(silent) > 1 || len(silent) == 1 && silent["b"].Report == "" {
				t.Fatalf("at %d s: silent are %v", at, silent)
			}
			kept = silent
			if c := previous[contract.PluginsDegraded]; found < 0 && c.Reason == contract.ReporterStale {
				found = process
			}
		}
	}
	if found != 2 {
		t.Errorf("found in process %d, want 2: after 180 s", found)
	}
	if got := kept["b"].For; got != 180 {
		t.Errorf("kept is a silence of %d s, want 180", got)
	}
	// A kept silence does not count for another report.
	e := last["b"]
	e.LastChecked = in(999)
	r := (&Seen{Resumed: kept}).Observe(in(1000), []operatorstatus.Report{wrote("b", e)})
	if !r[0].Entries[0].Changed.Equal(in(1000)) {
		t.Errorf("another report counts as unchanged since %s", r[0].Entries[0].Changed)
	}
}

// clocks are the errors of the nodes' clocks: constant or changing, of up to a month.
type clocks map[string]time.Duration

func (c clocks) step(d dice) {
	const month = 30 * 24 * time.Hour
	for _, node := range []string{"a", "b", "c"} {
		if c[node] == 0 || d.chance(20) {
			c[node] = time.Duration(d.Int64N(int64(2*month))) - month
		}
	}
}

// Wrong clocks of nodes and of the API server change nothing in a condition but its time, even if the error changes.
func TestWrongClocksChangeNoCondition(t *testing.T) {
	const runs, steps = 10000, 10
	seed := uint64(time.Now().UnixNano())
	for run := range uint64(runs) {
		d := dice{rand.New(rand.NewPCG(seed, run))}
		right, wrong := newSimulated(), newSimulated()
		errors := clocks{}
		at := now
		for range steps {
			at = at.Add(time.Duration(1+d.IntN(90)) * time.Second)
			errors.step(d)
			events := d.events(at)
			a, b := right.step(at, at, events, nil), wrong.step(at, at.Add(errors["a"]), events, errors)
			if a != b {
				t.Fatalf("seeds %d, %d at %s: with wrong clocks\n%s\nwant\n%s", seed, run, at.Sub(now), b, a)
			}
		}
	}
}

// simulated evaluates a roll-up over time.
type simulated struct {
	seen     Seen
	reports  map[string]operatorstatus.Report
	previous map[string]operatorstatus.Condition
	agreed   Agreement
}

func newSimulated() *simulated { return &simulated{reports: map[string]operatorstatus.Report{}} }

// event is a report of a node. Nodes without an event are silent.
type event struct {
	node, kekID string
	status      contract.Status
	at          time.Time
}

func (d dice) events(at time.Time) (all []event) {
	for _, node := range []string{"a", "b", "c"} {
		if d.chance(75) {
			all = append(all, event{node, pick(d, "k-7", "k-7", "k-8"), pick(d, contract.Healthy, contract.Healthy, contract.Error), at})
		}
	}
	return all
}

// step evaluates once: at is by the process's clock, wall by the API server's.
func (s *simulated) step(at, wall time.Time, events []event, wrong clocks) string {
	for _, v := range events {
		e := contract.Entry{KeyID: "2", KEKID: v.kekID, Status: v.status, LastChecked: v.at.Add(wrong[v.node]),
			Interval: 30 * time.Second, Since: v.at.Add(wrong[v.node]), RoundTrip: v.at.Add(wrong[v.node])}
		s.reports[v.node] = wrote(v.node, e)
	}
	var all []operatorstatus.Report
	for _, r := range s.reports {
		all = append(all, r)
	}
	r := Evaluate(&Input{Now: at, Wall: wall, Reports: s.seen.Observe(at, all), Nodes: abc("2"), Previous: s.previous,
		Agreement: s.agreed})
	s.previous, s.agreed = r.Conditions, r.Agreement
	text := ""
	for _, kind := range Types {
		c := r.Conditions[kind]
		text += fmt.Sprintln(c.Type, c.Status, c.Reason)
	}
	return text + r.Deadline.String()
}

// A report that a new process finds may be old. If its missing socket is excused, it is no evidence of health, so the
// earlier process's verdict stays.
func TestMissingSocketThatStandsDoesNotEndWhatAnEarlierProcessFound(t *testing.T) {
	for name, tt := range map[string]struct {
		node Node
		want string // while the report does not change
	}{
		"its Node has been down for long":  {longDown(on("a", "2")), stale},
		"its Node is down":                 {down(on("a", "2")), stale},
		"its API server is being replaced": {replacing(600, on("a", "2")), stale},
		"nothing excuses it":               {on("a", "2"), failed},
	} {
		t.Run(name, func(t *testing.T) {
			unknown := operatorstatus.Condition{Type: contract.PluginsDegraded, Status: operatorstatus.Unknown, Reason: contract.ReporterStale}
			seen := &Seen{}
			previous := map[string]operatorstatus.Condition{contract.PluginsDegraded: unknown}
			for at := range 180 {
				previous = Evaluate(&Input{Now: in(at), Wall: in(at), Nodes: []Node{tt.node}, Previous: previous,
					Reports: seen.Observe(in(at), []operatorstatus.Report{wrote("a", socketless("2", 0).Entry)})}).Conditions
				c := previous[contract.PluginsDegraded]
				if got := c.Status + " " + c.Reason; got != tt.want {
					t.Fatalf("at %d s: %s, want %s", at, got, tt.want)
				}
			}
		})
	}
}
