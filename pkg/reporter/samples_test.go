package reporter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// simulation simulates one plugin and its reporter with a simulated clock, at the default intervals.
type simulation struct {
	*testing.T
	now     time.Time
	plugin  *plugin
	probes  v1alpha1.Probe
	keyID   string
	lost    map[string]bool // keys that the plugin no longer has
	reason  contract.Reason // the result for a sample under a lost key
	slow    bool            // a round trip has time for one sample
	endsAt  bool            // the process ends at a sample under a lost key, and returns 10 s later
	away    time.Time       // the plugin is down until then
	ends    int             // how often the process ended
	calls   map[string]int
	reports []string // each change of the entry
}

func newSimulation(t *testing.T) *simulation {
	return &simulation{T: t, now: noon, probes: v1alpha1.DefaultProbe(), keyID: "k0", reason: contract.RoundTripMismatch, lost: map[string]bool{}, calls: map[string]int{},
		plugin: &plugin{wanted: wanted{keyID: "1", address: "/run/kms.sock"}}}
}

// do simulates steps: a duration passes, or what the switch has.
func (s *simulation) do(steps string) *simulation {
	s.Helper()
	for step := range strings.SplitSeq(steps, ", ") {
		what, of, _ := strings.Cut(step, " ")
		d, err := time.ParseDuration(cmp.Or(of, what))
		switch what {
		case "rotate":
			s.keyID = of
		case "lose":
			s.lost[of] = true
		case "restore":
			delete(s.lost, of)
		case "down":
			s.away = s.now.Add(d)
		case "suspend":
			s.now = wait.Suspended(s.now, d)
		case "real-clock": // has a wall and a monotonic reading
			s.now = time.Now()
		case "round-trips-off":
			s.plugin.trips = trips{} // as apply does
		case "forget-reports":
			s.reports = nil
		default:
			if err != nil {
				s.Fatal(err)
			}
			s.pass(d)
		}
	}
	return s
}

// pass probes once each interval, for a duration.
func (s *simulation) pass(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(s.probes.Interval.Duration) {
		for again := true; again; {
			again = s.probe()
		}
	}
}

func (s *simulation) probe() (again bool) {
	p, interval := s.plugin, s.probes.Interval.Duration
	p.last = probe.Result{Answered: true, Status: contract.Healthy, KEKID: s.keyID, At: s.now}
	if s.now.Before(s.away) {
		p.last = probe.Result{Status: contract.Error, Reason: contract.ConnectFailed, At: s.now}
	}
	p.trips.observe(s.now, interval, p.last)
	if p.trips.due(s.now, s.probes.Checks.RoundTrip.Interval.Duration, p.last) {
		again = p.trips.end(s.now, interval, s.trip(p.trips.begin(s.now, p.last)))
	}
	p.judge(s.now, s.probes)
	if got := s.entry(); p.observed && (len(s.reports) == 0 || s.reports[len(s.reports)-1] != got) {
		s.reports = append(s.reports, got)
	}
	return again
}

// entry returns the entry without times, and without texts that contain times.
func (s *simulation) entry() string {
	e := s.plugin.entry
	text := fmt.Sprintf("%s %s %s", e.Status, e.KEKID, e.Reason)
	if len(e.Lost) > 0 {
		text += " lost " + strings.Join(e.Lost, ",")
	}
	return strings.Join(strings.Fields(text), " ")
}

func (s *simulation) trip(kept []*probe.Sample) probe.Trip {
	s.calls["Encrypt"]++
	s.calls["Decrypt"]++
	trip := probe.Trip{Made: true, Status: contract.Healthy, KEKID: s.keyID, Sealed: &probe.Sample{KeyID: s.keyID, Plain: []byte("p"), At: s.now}}
	for _, k := range kept {
		s.calls["Decrypt"]++
		s.calls["kept "+k.KeyID]++
		opened := probe.Opened{Sample: k}
		if s.lost[k.KeyID] {
			opened.Reason, opened.Detail = s.reason, "Decrypt: no such key"
			if opened.Ended = s.endsAt; s.endsAt {
				s.ends++
				s.away = s.now.Add(10 * time.Second)
			}
		}
		if trip.Kept = append(trip.Kept, opened); opened.Ended || s.slow {
			break
		}
	}
	return trip
}

// expect compares all reports, separated by "; ".
func (s *simulation) expect(want string) {
	s.Helper()
	if got := strings.Join(s.reports, "; "); got != want {
		s.Errorf("reported: %s\nwant:     %s", got, want)
	}
}

// shows compares the entry.
func (s *simulation) shows(want string) {
	s.Helper()
	if got := s.entry(); got != want {
		s.Errorf("got %s: %s, want %s", got, s.plugin.entry.Detail, want)
	}
}

// A real plugin panicked when it was asked to decrypt data of another key.
func TestPluginThatEndsAtAFormerKeyIsAskedMoreAndMoreRarely(t *testing.T) {
	s := newSimulation(t).do("1m, rotate k1, lose k0")
	s.endsAt = true
	s.do("1h")
	if s.ends < 4 || s.ends > 8 {
		t.Errorf("it ended %d times in an hour", s.ends)
	}
	s.shows("unhealthy k1 RoundTripMismatch")
	if detail := s.plugin.entry.Detail; !strings.Contains(detail, `under the former key_id "k0" was not decrypted: the connection broke at this call, so the plugin may have ended at it`) {
		t.Errorf("%s", detail)
	}
	s.do("24h").shows("healthy k1 lost k0")
	s.do("48h, restore k0, forget-reports, rotate k0, 1h").expect("healthy k0")
}

// aws-encryption-provider is unhealthy for 30 s after each Decrypt that AWS refuses (healthCheckErrc in
// pkg/plugin/plugin_v2.go). AWS refuses it after an administrator disabled a former key that is no longer needed.
func TestFormerKeyThatWasDisabledIsTriedMoreAndMoreRarely(t *testing.T) {
	s := newSimulation(t).do("1m, rotate k1, 1h, lose k0")
	s.reason = contract.ReportedUnhealthy
	clear(s.calls)
	s.do("144h").shows("healthy k1 lost k0")
	if n := s.calls["kept k0"]; n < 4 || n > 10 {
		t.Errorf("it was tried %d times in 6 days", n)
	}
}

func TestFormerKeys(t *testing.T) {
	for name, tt := range map[string]struct{ steps, want string }{
		"kept by the KMS":                         {"rotate k1, 25h", "healthy k0; healthy k1"},
		"gone at the change, for a day":           {"lose k0, rotate k1, 25h", "healthy k0; unhealthy k1 RoundTripMismatch; healthy k1 lost k0"},
		"gone at the change, and restored":        {"lose k0, rotate k1, 1h, restore k0, 1h", "healthy k0; unhealthy k1 RoundTripMismatch; healthy k1"},
		"gone later":                              {"rotate k1, 1h, lose k0, 1h", "healthy k0; healthy k1; healthy k1 lost k0"},
		"gone later, and restored":                {"rotate k1, 1h, lose k0, 1h, restore k0, 2h", "healthy k0; healthy k1; healthy k1 lost k0; healthy k1"},
		"gone later, for a week":                  {"rotate k1, 1h, lose k0, 192h", "healthy k0; healthy k1; healthy k1 lost k0; healthy k1"},
		"the current one, replaced":               {"lose k0, 1h", "healthy k0; unhealthy k0 RoundTripMismatch"},
		"the current one, replaced, then rotated": {"lose k0, 1h, rotate k1, 1h", "healthy k0; unhealthy k0 RoundTripMismatch; unhealthy k1 RoundTripMismatch"},
		"rotated twice, two versions kept":        {"rotate k1, 1h, lose k0, rotate k2, 1h", "healthy k0; healthy k1; healthy k2; healthy k2 lost k0"},
		// After that the sample is tried within two minutes, not an hour later.
		"gone at the change, restored, and named again":  {"lose k0, rotate k1, 5h, restore k0, rotate k0, 2m", "healthy k0; unhealthy k1 RoundTripMismatch; healthy k0"},
		"gone at the change, and named again":            {"lose k0, rotate k1, 1h, rotate k0, 1h", "healthy k0; unhealthy k1 RoundTripMismatch; unhealthy k0 RoundTripMismatch"},
		"the current one, restored with a restart":       {"lose k0, 5h, restore k0, down 1m, 3m", "healthy k0; unhealthy k0 RoundTripMismatch; error ConnectFailed; healthy k0"},
		"gone at a change during two hours of a suspend": {"real-clock, forget-reports, 1h, suspend 2h, lose k0, rotate k1, 1h", "healthy k0; healthy k1 lost k0"},
		"turned off and on":                              {"lose k0, rotate k1, 1h, round-trips-off, 1h", "healthy k0; unhealthy k1 RoundTripMismatch; healthy k1"},
	} {
		t.Run(name, func(t *testing.T) { newSimulation(t).do("1h, " + tt.steps).expect(tt.want) })
	}
}

func TestFormerKeyThatIsRefusedOnceWithoutACauseIsNotLost(t *testing.T) {
	s := newSimulation(t).do("1h, rotate k1, 1h, lose k0")
	s.reason = contract.ReportedUnhealthy
	for clear(s.calls); s.calls["kept k0"] == 0; {
		s.pass(s.probes.Interval.Duration)
	}
	s.do("restore k0, 1h").expect("healthy k0; healthy k1")
}

// The KMS keeps only two versions of its key, so each key is lost at the second rotation after it.
func TestEightRotations(t *testing.T) {
	s := newSimulation(t).do("1h, rotate k1, 3h")
	for i := range 7 {
		s.do(fmt.Sprintf("lose k%d, rotate k%d, 3h", i, i+2))
	}
	s.shows("healthy k8 lost k0,k1,k2,k3,k4,k5,k6")
	if n := len(s.plugin.trips.samples.Kept); n != 9 {
		t.Errorf("%d samples are kept", n)
	}
	s.do("rotate k9, lose k7, 3h").shows("healthy k9 lost k1,k2,k3,k4,k5,k6,k7")
}

// A day has 288 round trips of one Encrypt and two Decrypt calls, with former keys or without.
func TestCallsOfADay(t *testing.T) {
	for rotations, want := range map[int]int{0: 288, 1: 144, 5: 144} { // the samples take turns
		s := newSimulation(t).do("1h")
		for i := range rotations {
			s.do(fmt.Sprintf("rotate k%d, 1h", i+1))
		}
		clear(s.calls)
		s.do("24h")
		if s.calls["Encrypt"] != 288 || s.calls["Decrypt"] != 2*288 || s.calls["kept "+s.keyID] != want {
			t.Errorf("after %d rotations: %v, want the first sample of the key %d times", rotations, s.calls, want)
		}
	}
}

// restart returns the simulation of the next process, which starts after a duration without a reporter.
func (s *simulation) restart(away time.Duration) *simulation {
	s.Helper()
	file := s.TempDir() + "/samples"
	r := &Reporter{samples: newSink(nil), state: &state{}, plugins: []*plugin{s.plugin}}
	r.save(s.now, true)
	must.Succeed(s.T, writeState(file, <-r.samples.latest))
	next := newSimulation(s.T)
	next.now, next.keyID, next.lost = s.now.Add(away), s.keyID, s.lost
	next.plugin.trips.samples = loadState(file, next.now).Plugins[next.plugin.id()]
	next.plugin.trips.request = s.plugin.trips.request // the request is still in the configuration file
	return next
}

// Samples of the former process reveal changes that happened while no reporter ran.
func TestSamplesOutliveTheProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		away        time.Duration
		steps, want string
	}{
		"nothing changed":                    {time.Minute, "1h", "healthy k0"},
		"the key was replaced":               {time.Minute, "lose k0, 1h", "unhealthy k0 RoundTripMismatch"},
		"the key was replaced, days ago":     {50 * time.Hour, "lose k0, 1h", "unhealthy k0 RoundTripMismatch"},
		"rotated":                            {time.Minute, "rotate k1, 1h", "healthy k1"},
		"rotated, and the former key lost":   {time.Minute, "lose k0, rotate k1, 1h", "unhealthy k1 RoundTripMismatch"},
		"so, while no reporter ran for long": {2 * time.Hour, "lose k0, rotate k1, 1h", "healthy k1 lost k0"},
		"so, for more than a week":           {8 * 24 * time.Hour, "lose k0, rotate k1, 1h", "healthy k1"},
	} {
		t.Run(name, func(t *testing.T) {
			newSimulation(t).do("1h").restart(tt.away).do(tt.steps).expect(tt.want)
		})
	}
}

// A fulfilled request stays in the file, and a former key may be lost for days. A restart must not repeat a refused
// Decrypt, because aws-encryption-provider counts that against its health.
func TestLostKeyIsNotTriedSoonerAfterARestart(t *testing.T) {
	s := newSimulation(t).do("1h, rotate k1, 1h, lose k0")
	s.plugin.trips.request = "r"
	next := s.do("24h").restart(time.Minute).do("6h")
	next.shows("healthy k1 lost k0")
	if got := next.plugin.entry.Requested; next.calls["kept k0"] != 0 || got != "r" {
		t.Errorf("after a restart: %v, request %q", next.calls, got)
	}
}

// A failure that a former process saw is no evidence against the plugin now: nodes may be restarted when a key is
// restored.
func TestRestoredKeyIsTriedAtOnceAfterARestart(t *testing.T) {
	for _, current := range []string{"k0", "k1"} {
		s := newSimulation(t).do("1h, lose k0, rotate " + current + ", 5h")
		s.shows("unhealthy " + current + " RoundTripMismatch")
		s.do("restore k0").restart(time.Minute).do("1h").expect("healthy " + current)
	}
}

// A reporter may end before the plugin has named a key. The next one must still know that no reporter ran for long.
func TestLongAbsenceIsKnownAfterASecondStart(t *testing.T) {
	var s samples
	s.loaded(noon, noon.Add(-3*time.Hour))
	var next samples
	if err := json.Unmarshal([]byte(contract.Marshal(s)), &next); err != nil || !next.loaded(noon, noon) || !next.Absent {
		t.Errorf("%+v, %v", next, err)
	}
	next.named("k", noon)
	if next.Absent {
		t.Error("still absent after a key was named")
	}
}

// Times of the file get monotonic readings at the start, so later clock changes do not affect them.
func TestTimesOfTheFileAreAges(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct{ named, tried, next, wantNamed, wantTried, wantNext time.Duration }{
		"as they were":    {-time.Hour, -time.Minute, time.Minute, -time.Hour, -time.Minute, time.Minute},
		"of the future":   {time.Hour, 2 * time.Hour, 3 * time.Hour, 0, 0, mostSampleRetry},
		"it was due long": {-time.Hour, -time.Hour, -time.Minute, -time.Hour, -time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			at := func(d time.Duration) time.Time { return now.Round(0).Add(d) }
			k := &kept{Sample: probe.Sample{KeyID: "k", Plain: []byte("p")}, Named: at(tt.named), Tried: at(tt.tried), Next: at(tt.next)}
			s := samples{Kept: []*kept{k}}
			s.loaded(now, now)
			for what, pair := range map[string][2]time.Time{"named": {k.Named, now.Add(tt.wantNamed)}, "tried": {k.Tried, now.Add(tt.wantTried)}, "next": {k.Next, now.Add(tt.wantNext)}} {
				if got, want := pair[0], pair[1]; got.Sub(want).Abs() > time.Second || got.String() == got.Round(0).String() {
					t.Errorf("%s: got %s, want %s with a monotonic reading", what, got, want)
				}
			}
		})
	}
}

func TestFileOfSamplesThatCannotBeUsedMeansNone(t *testing.T) {
	var tooMany samples
	for i := range mostFormer + 2 {
		tooMany.Kept = append(tooMany.Kept, &kept{Sample: probe.Sample{KeyID: fmt.Sprint(i), Plain: []byte("p")}})
	}
	for name, content := range map[string]string{
		"empty":            "",
		"no JSON":          "{",
		"null":             "null",
		"another type":     `{"plugins": 7}`,
		"a null sample":    `{"plugins": {"1 /run/kms.sock": {"kept": [null]}}}`,
		"no key":           `{"plugins": {"1 /run/kms.sock": {"kept": [{"plain": "cA=="}]}}}`,
		"too many samples": contract.Marshal(state{Plugins: map[string]samples{"1 /run/kms.sock": tooMany}}),
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/samples"
			must.Succeed(t, writeState(file, []byte(content)))
			if s := loadState(file, noon); len(s.Plugins) != 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// While a new key's first round trip is under way, the plugin names a former key again.
func TestNoMoreSamplesAreKeptThanAFileMayHave(t *testing.T) {
	var s samples
	for i := range mostFormer + 1 {
		s.Current = fmt.Sprint(i)
		s.end(noon, probe.Trip{Made: true, Sealed: &probe.Sample{KeyID: s.Current, Plain: []byte("p")}})
	}
	s.Current = "0"
	s.end(noon, probe.Trip{Made: true, Sealed: &probe.Sample{KeyID: "next", Plain: []byte("p")}})
	if len(s.Kept) != mostFormer+1 || s.of("0") == nil || s.of("next") == nil {
		t.Errorf("%d samples are kept, want %d with that of the current key", len(s.Kept), mostFormer+1)
	}
}

// A timeout shows nothing about a key. Nor does an error without a cause: the plugins of AWS, Azure and Google return
// UNKNOWN even for a KMS that throttles. Both are tried again soon, and count as a loss if they last.
func TestSampleThatTheKMSDidNotDecryptInTime(t *testing.T) {
	for name, tt := range map[string]struct {
		keyID   string
		outcome probe.Opened
		tries   int
		status  contract.Status
		text    string
		lost    bool
		next    time.Duration
	}{
		"the current key, once": {"k", probe.Opened{Reason: contract.Timeout, Detail: "d"}, 1, contract.Unhealthy, "was not decrypted: d", false, tripRetry},
		"so, twice":             {"k", probe.Opened{Reason: contract.Unavailable, Detail: "d"}, 2, contract.Unhealthy, "was not decrypted: d", false, 2 * tripRetry},
		"a former key, once":    {"j", probe.Opened{Reason: contract.Timeout, Detail: "d"}, 1, "", "", false, tripRetry},
		"so, three times":       {"j", probe.Opened{Reason: contract.Timeout, Detail: "d"}, 3, "", "", true, 4 * tripRetry},
		"no cause, once":        {"j", probe.Opened{Reason: contract.ReportedUnhealthy, Detail: "d"}, 1, "", "", false, tripRetry},
		"so, again and again":   {"j", probe.Opened{Reason: contract.ReportedUnhealthy, Detail: "d"}, 3, "", "", true, mostSampleRetry},
		"so, the current key":   {"k", probe.Opened{Reason: contract.ReportedUnhealthy, Detail: "d"}, 2, contract.Unhealthy, "was not decrypted: d", false, 2 * tripRetry},
		"and again":             {"k", probe.Opened{Reason: contract.ReportedUnhealthy, Detail: "d"}, 3, contract.Unhealthy, "can no longer be decrypted: d", false, 4 * tripRetry},
		"refused":               {"j", probe.Opened{Reason: contract.KeyUnavailable, Detail: "d"}, 1, "", "", true, sampleRetry},
		"the connection broke":  {"j", probe.Opened{Reason: contract.Unavailable, Detail: "d", Ended: true}, 1, "", "", true, sampleRetry},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kept{Sample: probe.Sample{KeyID: tt.keyID}, Named: noon}
			s := samples{Current: "k", Kept: []*kept{k}}
			tt.outcome.Sample = &k.Sample
			for range tt.tries {
				s.end(noon, probe.Trip{Made: true, Status: contract.Healthy, Kept: []probe.Opened{tt.outcome}})
			}
			v := s.verdict(noon)
			if gone := strings.Contains(tt.text, "no longer"); (v.Reason == contract.RoundTripMismatch) != gone {
				t.Errorf("the reason is %s: %s", v.Reason, v.Detail)
			}
			if v.Status != tt.status || !strings.Contains(v.Detail, tt.text) || (len(s.lost(noon)) == 1) != tt.lost || !k.Next.Equal(noon.Add(tt.next)) {
				t.Errorf("%+v, lost %v, next after %s", v, s.lost(noon), k.Next.Sub(noon))
			}
		})
	}
}

func TestSampleWithLargeAnnotationsIsNotKept(t *testing.T) {
	for size, want := range map[int]int{mostKeptAnnotations: 1, mostKeptAnnotations + 1: 0} {
		var s samples
		s.end(noon, probe.Trip{Sealed: &probe.Sample{KeyID: "k", Annotations: map[string][]byte{"a": make([]byte, size-1)}}})
		if len(s.Kept) != want {
			t.Errorf("%d bytes: %d kept", size, len(s.Kept))
		}
	}
}

// A request retries a failed sample at once, but not a sample at which the plugin's process may have ended.
func TestSampleThatARequestRetries(t *testing.T) {
	for name, tt := range map[string]struct {
		kept            kept
		requested, want bool
	}{
		"never tried":            {kept{}, false, true},
		"failed":                 {kept{Failed: 1, Next: noon.Add(1)}, false, false},
		"failed, and it is time": {kept{Failed: 1, Next: noon}, false, true},
		"failed, requested":      {kept{Failed: 1, Next: noon.Add(1)}, true, true},
		"ended, requested":       {kept{Failed: 1, Next: noon.Add(1), Ended: true}, true, false},
		"ended, and it is time":  {kept{Failed: 1, Next: noon, Ended: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			tt.kept.KeyID = "k"
			s := samples{Current: "k", Kept: []*kept{&tt.kept}}
			got := s.untried(noon)
			if !tt.requested {
				got = s.next(noon)
			}
			if (len(got) > 0) != tt.want {
				t.Errorf("tried: %v", got)
			}
		})
	}
}

// Before a restart loses keys that are only cached, an administrator requests a round trip. It has to try every kept
// sample, while regular round trips take turns for hours.
func TestRequestIsFulfilledWhenEachKeptSampleWasTried(t *testing.T) {
	for name, tt := range map[string]struct {
		slow          bool
		reason        contract.Reason
		trips, opened int
	}{
		"at once":                    {false, contract.KeyUnavailable, 1, 6},
		"one in a round trip":        {true, contract.KeyUnavailable, 6, 6},
		"a KMS that does not answer": {false, contract.Timeout, transientTries, 6 + 2*(transientTries-1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t)
			s.slow, s.reason = tt.slow, tt.reason
			for i := range 6 {
				s.do(fmt.Sprintf("rotate k%d, 1h", i))
			}
			s.do("lose k0, lose k1")
			clear(s.calls)
			s.plugin.trips.request = "r"
			trips := 0
			for ; s.plugin.entry.Requested != "r" && trips < 9; trips++ {
				s.pass(s.probes.Interval.Duration)
			}
			s.shows("healthy k5 lost k0,k1")
			if trips != tt.trips || s.calls["Decrypt"] != trips+tt.opened {
				t.Errorf("after %d round trips %v", trips, s.calls)
			}
		})
	}
}
