package rollup

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

var never time.Time

func TestAgeIsSinceAChangeWasSeen(t *testing.T) {
	e := healthy("2", 0).Entry
	seen, day := &Seen{}, 24*time.Hour
	observe := func(at int) Entry {
		return seen.Observe(in(at), in(at), never, []operatorstatus.Report{wrote("a", e)})[0].Entries[0]
	}
	for _, step := range []struct {
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
	} {
		e.LastChecked, e.KEKID = now.Add(step.checked), step.kekID
		got := observe(step.at)
		if !got.Changed.Equal(in(step.changed)) || got.Standing != step.standing || got.Named != step.kekID {
			t.Errorf("%+v, want %+v", got, step)
		}
	}
	e.Status, e.KEKID, e.Reason = contract.Error, "", contract.Timeout
	if got := observe(120); got.Named != "k-8" || !got.NamedAt.Equal(in(90)) {
		t.Errorf("after a time-out it named %q at %s, want k-8 at %s", got.Named, got.NamedAt, in(90))
	}
	seen.Observe(in(150), in(150), never, nil)
	if got := observe(180); got.Standing || got.Named != "" || !got.Changed.Equal(in(180)) {
		t.Errorf("an entry that came back: %+v", got)
	}
}

// A request without an answer makes each entry that is valid then count for longer, once: its reporter may have lost
// the API server, too. One that was silent before is not excused by it.
func TestOutageMakesValidEntriesCountForLongerOnce(t *testing.T) {
	const ends = contract.StaleIntervals * 30
	for name, tt := range map[string]struct {
		unanswered []int
		want       int // when it is stale
	}{
		"none":                      {nil, ends},
		"before it was written":     {[]int{-1}, ends},
		"one":                       {[]int{ends - 1}, ends + 60},
		"one each minute":           {[]int{50, 110, 170, 230}, ends + 60},
		"one after it became stale": {[]int{ends}, ends},
	} {
		t.Run(name, func(t *testing.T) {
			p, found := &process{}, 0
			p.at(-60, aIs())
			for at := range 2 * ends {
				for _, when := range tt.unanswered {
					if when <= at {
						p.unanswered = in(when)
					}
				}
				if p.at(at, aIs(), wrote("a", checked(0, healthy("2", 0)))).degraded() == stale {
					found = at
					break
				}
			}
			if found != tt.want {
				t.Errorf("stale at %d s, want %d s", found, tt.want)
			}
		})
	}
}

func TestAgeOfAReportThatCannotBeReadIsSinceItsError(t *testing.T) {
	seen := &Seen{}
	for _, step := range []struct {
		at      int
		err     string
		changed int
	}{{0, "x", 0}, {30, "x", 0}, {60, "y", 60}, {90, "x", 90}} {
		r := operatorstatus.Report{Node: "a", Form: operatorstatus.FormCondition, Err: errors.New(step.err)}
		got := seen.Observe(in(step.at), in(step.at), never, []operatorstatus.Report{r})[0]
		stale := in(step.changed + 120)
		if step.changed == 0 { // how old it was at the start is not known
			stale = stale.Add(outagePeriod)
		}
		if !got.Entries[0].Changed.Equal(in(step.changed)) || !got.StaleFrom().Equal(stale) {
			t.Errorf("at %d s: changed at %s, stale from %s", step.at, got.Entries[0].Changed, got.StaleFrom())
		}
	}
}

func TestConditionsOfAnEarlierProcessStayUntilReportsChange(t *testing.T) {
	earlier := Evaluate(&Input{Now: now, Wall: now, WriteKey: "2", Agreement: agreement2, Nodes: two,
		Reports: ok}).Conditions
	p, e := &process{previous: earlier}, checked(0, healthy("2", 0))
	if got := p.at(0, two, wrote("a", e), wrote("b", e), wrote("c", e)); !got.Same(earlier) {
		t.Errorf("got %+v, want %+v", got.Conditions, earlier)
	}
}

// Two API server pods on one node, each with a sidecar, overwrite each other's condition. The last report of the pod
// that counts decides the verdict.
func TestReportsThatOverwriteEachOtherDoNotAlternateTheVerdict(t *testing.T) {
	nodes := aIs(attended("counts"))
	p := &process{}
	check := func(at int, reporter string, e Entry, want string) {
		t.Helper()
		e.Reporter = reporter
		if got := p.at(at, nodes, wrote("a", e.Entry)).degraded(); got != want {
			t.Errorf("at %d s, by %s: %s, want %s", at, reporter, got, want)
		}
	}
	check(0, "counts", healthy("2", 0), awaiting)
	for at := 30; at < 600; at += 30 {
		check(at, "counts", healthy("2", -at), fine)
		check(at+15, "other", inError("2", -at, "sealed"), fine)
	}
	check(600, "counts", inError("2", -600, "sealed"), failed)
	check(601, "other", healthy("2", -600), failed)
	check(800, "other", healthy("2", -700), failed) // for longer than the report that counts is valid
	nodes = []Node{noKMS("a")}
	if got := p.at(830, nodes, wrote("a")).degraded(); got != "False NoPlugins" {
		t.Errorf("a report without entries: %s", got)
	}
	check(831, "other", inError("3", -831, "sealed"), "False NoPlugins")
}

// Each process ends before a report could become stale. The silence is still found, because processes hand it on.
func TestRestartsHideNoSilence(t *testing.T) {
	const life = 70 // seconds
	p, found := &process{}, -1
	var kept map[string]Silence
	for at := range 9 * life / 10 {
		at *= 10
		if at%life == 0 {
			p = &process{seen: Seen{Resumed: kept}, previous: p.previous}
		}
		var reports []operatorstatus.Report
		for _, node := range []string{"a", "b", "c"} {
			e := checked(at/30*30, healthy("2", 0))
			if node == "b" { // b is silent
				e = checked(0, healthy("2", 0))
			}
			reports = append(reports, wrote(node, e))
		}
		if got := p.at(at, abc("2"), reports...).degraded(); found < 0 && got == stale {
			found = at
		}
		var next time.Time
		if kept, next = p.seen.Silences(in(at)); !next.After(in(at)) {
			t.Errorf("at %d s: the next change is due at %s", at, next.Sub(now))
		}
		if len(kept) > 1 || len(kept) == 1 && kept["b"].Report == "" {
			t.Fatalf("at %d s: silent are %v", at, kept)
		}
	}
	if found != 200 || kept["b"].For != 480 { // it is handed on in steps of a minute, until MaxExcuse after 180 s
		t.Errorf("found at %d s, want 200 s; kept is a silence of %d s, want 480 s", found, kept["b"].For)
	}
	// A kept silence does not count for another report.
	r := (&Seen{Resumed: kept}).Observe(in(1000), in(1000), never, []operatorstatus.Report{wrote("b", checked(999, healthy("2", 0)))})
	if !r[0].Entries[0].Changed.Equal(in(1000)) {
		t.Errorf("another report counts as unchanged since %s", r[0].Entries[0].Changed)
	}
}

// Wrong clocks of nodes and of the API server change nothing in a condition but its times: they are wrong by up to a
// month, always or from some time on.
func TestWrongClocksChangeNoCondition(t *testing.T) {
	const runs, steps, month = 10000, 10, 30 * 24 * time.Hour
	seed := uint64(time.Now().UnixNano())
	for run := range uint64(runs) {
		d, at := dice{rand.New(rand.NewPCG(seed, run))}, 0
		right, wrong, errors := &process{}, &process{}, map[string]time.Duration{}
		stepping := d.chance(50)
		rightly, wrongly := map[string]operatorstatus.Report{}, map[string]operatorstatus.Report{} // by node
		for range steps {
			at += 1 + d.IntN(90)
			for _, node := range []string{"a", "b", "c"} {
				if errors[node] == 0 || stepping && d.chance(20) {
					errors[node] = time.Duration(d.Int64N(int64(2*month))) - month
				}
				if d.chance(25) { // it does not report
					continue
				}
				e := naming(pick(d, "k-7", "k-7", "k-8"), healthy("2", 0)).Entry
				e.Status = pick(d, contract.Healthy, contract.Healthy, contract.Error)
				for clock, reports := range map[time.Duration]map[string]operatorstatus.Report{0: rightly, errors[node]: wrongly} {
					checked := in(at).Add(clock)
					e.LastChecked, e.Since, e.RoundTrip = checked, checked, checked
					reports[node] = wrote(node, e)
				}
			}
			if d.chance(10) {
				right.unanswered, wrong.unanswered = in(at), in(at)
			}
			wrong.ahead = errors["a"]
			a := right.at(at, abc("2"), slices.Collect(maps.Values(rightly))...)
			b := wrong.at(at, abc("2"), slices.Collect(maps.Values(wrongly))...)
			for _, kind := range Types {
				want, got := a.withoutTimes(kind), b.withoutTimes(kind)
				if got != want || a.Deadline != b.Deadline {
					t.Fatalf("seeds %d, %d at %d s: got %+v until %s, want %+v until %s", seed, run, at, got, b.Deadline, want,
						a.Deadline)
				}
			}
		}
	}
}

// withoutTimes returns a condition without its times, which are by the API server's clock.
func (r *Result) withoutTimes(kind string) operatorstatus.Condition {
	c := r.Conditions[kind]
	c.LastTransitionTime = time.Time{}
	if agreed, err := DecodeAgreedKey(c.Message); err == nil {
		agreed.Since = ""
		c.Message = contract.Marshal(agreed)
	}
	return c
}

// A report that a new process finds may be old. If its missing socket is excused, it is no evidence of health, so the
// earlier process's verdict stays.
func TestMissingSocketThatStandsDoesNotEndWhatAnEarlierProcessFound(t *testing.T) {
	for name, tt := range map[string]struct {
		node Node
		want string // while the report does not change
	}{
		"its Node has been down for long":  {with(on("a", "2"), longDown), stale},
		"its Node is down":                 {with(on("a", "2"), down), stale},
		"its API server is being replaced": {with(on("a", "2"), replacing(600)), stale},
		"nothing excuses it":               {on("a", "2"), failed},
	} {
		p := &process{previous: map[string]operatorstatus.Condition{contract.PluginsDegraded: {
			Type: contract.PluginsDegraded, Status: operatorstatus.Unknown, Reason: contract.ReporterStale}}}
		for at := range 180 {
			if got := p.at(at, []Node{tt.node}, wrote("a", socketless(0).Entry)).degraded(); got != tt.want {
				t.Fatalf("%s, at %d s: %s, want %s", name, at, got, tt.want)
			}
		}
	}
}

// A process that restarts often excuses no silence anew, whatever the interval: a record ends when no excuse is left.
func TestRecordOfALongSilenceLeavesNoExcuse(t *testing.T) {
	for _, seconds := range []int{1, 7, 30, 120, 300, 600} {
		reports := []operatorstatus.Report{wrote("a", every(seconds, healthy("2", 0)).Entry)}
		before, later := Seen{}, now.Add(2*time.Hour)
		before.Observe(now, now, never, reports)
		before.Observe(later, later, never, reports)
		next := Seen{}
		next.Resumed, _ = before.Silences(later)
		if left := next.Observe(later, later, never, reports)[0].StaleFrom().Add(MaxExcuse).Sub(later); left > 0 {
			t.Errorf("every %d s: excused for %s after each restart", seconds, left)
		}
	}
}
