package reporter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
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
		plugin: &plugin{wanted: wanted{identity: identity{keyID: "1", address: "/run/kms.sock"}}}}
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
	if got := describe(p.entry); p.observed && (len(s.reports) == 0 || s.reports[len(s.reports)-1] != got) {
		s.reports = append(s.reports, got)
	}
	return again
}

// describe returns an entry without times, and without texts that contain times.
func describe(e contract.Entry) string {
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

func (s *simulation) rotate(to string) { s.keyID = to }

func (s *simulation) expect(want ...string) {
	s.Helper()
	if !slices.Equal(s.reports, want) {
		s.Errorf("reported:\n%s\nwant:\n%s", strings.Join(s.reports, "\n"), strings.Join(want, "\n"))
	}
}

// A real plugin panicked when it was asked to decrypt data of another key.
func TestPluginThatEndsAtAFormerKeyIsAskedMoreAndMoreRarely(t *testing.T) {
	s := newSimulation(t)
	s.pass(time.Minute)
	s.rotate("k1")
	s.lost["k0"], s.endsAt = true, true
	s.pass(time.Hour)
	if s.ends < 4 || s.ends > 8 {
		t.Errorf("it ended %d times in an hour", s.ends)
	}
	if e := s.plugin.entry; e.Status != contract.Unhealthy || e.Reason != contract.RoundTripMismatch ||
		!strings.Contains(e.Detail, `under the former key_id "k0" was not decrypted: the connection broke at this call, so the plugin may have ended at it`) {
		t.Errorf("%+v", e)
	}
	s.pass(24 * time.Hour)
	if e := s.plugin.entry; e.Status != contract.Healthy || !slices.Equal(e.Lost, []string{"k0"}) {
		t.Errorf("a day later: %+v", e)
	}
}

// aws-encryption-provider is unhealthy for 30 s after each Decrypt that AWS refuses (healthCheckErrc in
// pkg/plugin/plugin_v2.go). AWS refuses it after an administrator disabled a former key that is no longer needed.
func TestFormerKeyThatWasDisabledIsTriedMoreAndMoreRarely(t *testing.T) {
	s := newSimulation(t)
	s.pass(time.Minute)
	s.rotate("k1")
	s.pass(time.Hour)
	s.reason, s.lost["k0"] = contract.ReportedUnhealthy, true
	clear(s.calls)
	s.pass(6 * 24 * time.Hour)
	if n := s.calls["kept k0"]; n < 4 || n > 10 {
		t.Errorf("it was tried %d times in 6 days", n)
	}
	if e := s.plugin.entry; e.Status != contract.Healthy || !slices.Equal(e.Lost, []string{"k0"}) {
		t.Errorf("%+v", e)
	}
}

func TestFormerKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*simulation)
		want []string
	}{
		"kept by the KMS": {func(s *simulation) { s.rotate("k1"); s.pass(25 * time.Hour) }, []string{"healthy k0", "healthy k1"}},
		"gone at the change, for a day": {
			func(s *simulation) { s.lost["k0"] = true; s.rotate("k1"); s.pass(25 * time.Hour) },
			[]string{"healthy k0", "unhealthy k1 RoundTripMismatch", "healthy k1 lost k0"},
		},
		"gone at the change, and restored": {
			func(s *simulation) {
				s.lost["k0"] = true
				s.rotate("k1")
				s.pass(time.Hour)
				s.lost["k0"] = false
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "unhealthy k1 RoundTripMismatch", "healthy k1"},
		},
		"gone later": {
			func(s *simulation) { s.rotate("k1"); s.pass(time.Hour); s.lost["k0"] = true; s.pass(time.Hour) },
			[]string{"healthy k0", "healthy k1", "healthy k1 lost k0"},
		},
		"gone later, and restored": {
			func(s *simulation) {
				s.rotate("k1")
				s.pass(time.Hour)
				s.lost["k0"] = true
				s.pass(time.Hour)
				s.lost["k0"] = false
				s.pass(2 * time.Hour)
			},
			[]string{"healthy k0", "healthy k1", "healthy k1 lost k0", "healthy k1"},
		},
		"gone later, for one try, by an error without a cause": {
			func(s *simulation) {
				s.rotate("k1")
				s.pass(time.Hour)
				s.reason, s.lost["k0"] = contract.ReportedUnhealthy, true
				for clear(s.calls); s.calls["kept k0"] == 0; {
					s.pass(s.probes.Interval.Duration)
				}
				s.lost["k0"] = false
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "healthy k1"},
		},
		"gone later, for a week": {
			func(s *simulation) {
				s.rotate("k1")
				s.pass(time.Hour)
				s.lost["k0"] = true
				s.pass(8 * 24 * time.Hour)
			},
			[]string{"healthy k0", "healthy k1", "healthy k1 lost k0", "healthy k1"},
		},
		"the current one, replaced": {
			func(s *simulation) { s.lost["k0"] = true; s.pass(time.Hour) },
			[]string{"healthy k0", "unhealthy k0 RoundTripMismatch"},
		},
		"the current one, replaced, then rotated": {
			func(s *simulation) { s.lost["k0"] = true; s.pass(time.Hour); s.rotate("k1"); s.pass(time.Hour) },
			[]string{"healthy k0", "unhealthy k0 RoundTripMismatch", "unhealthy k1 RoundTripMismatch"},
		},
		"rotated twice, two versions kept": {
			func(s *simulation) {
				s.rotate("k1")
				s.pass(time.Hour)
				s.lost["k0"] = true
				s.rotate("k2")
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "healthy k1", "healthy k2", "healthy k2 lost k0"},
		},
		"gone at the change, restored, and named again": {
			func(s *simulation) {
				s.lost["k0"] = true
				s.rotate("k1")
				s.pass(5 * time.Hour)
				s.lost["k0"] = false
				s.rotate("k0")
				s.pass(2 * time.Minute)
				if e := s.plugin.entry; e.Status != contract.Healthy {
					s.Errorf("two minutes later: %+v", e)
				}
			},
			[]string{"healthy k0", "unhealthy k1 RoundTripMismatch", "healthy k0"},
		},
		"gone at the change, and named again": {
			func(s *simulation) {
				s.lost["k0"] = true
				s.rotate("k1")
				s.pass(time.Hour)
				s.rotate("k0")
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "unhealthy k1 RoundTripMismatch", "unhealthy k0 RoundTripMismatch"},
		},
		"the plugin ended at it while it was a former one": {
			func(s *simulation) {
				s.rotate("k1")
				s.pass(time.Hour)
				s.lost["k0"], s.endsAt = true, true
				s.pass(48 * time.Hour)
				s.lost["k0"], s.reports = false, nil
				s.rotate("k0")
				s.pass(time.Hour)
			},
			[]string{"healthy k0"},
		},
		"the current one, restored with a restart": {
			func(s *simulation) {
				s.lost["k0"] = true
				s.pass(5 * time.Hour)
				s.lost["k0"] = false
				s.away = s.now.Add(time.Minute)
				s.pass(3 * time.Minute)
			},
			[]string{"healthy k0", "unhealthy k0 RoundTripMismatch", "error ConnectFailed", "healthy k0"},
		},
		"gone at a change during two hours of a suspend": {
			func(s *simulation) {
				s.now = time.Now() // has a wall and a monotonic reading
				s.pass(time.Hour)
				s.now = wait.Suspended(s.now, 2*time.Hour)
				s.lost["k0"] = true
				s.rotate("k1")
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "healthy k1 lost k0"},
		},
		"turned off and on": {
			func(s *simulation) {
				s.lost["k0"] = true
				s.rotate("k1")
				s.pass(time.Hour)
				s.plugin.trips = trips{} // apply does this when round trips are turned off
				s.pass(time.Hour)
			},
			[]string{"healthy k0", "unhealthy k1 RoundTripMismatch", "healthy k1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t)
			s.pass(time.Hour)
			tt.do(s)
			s.expect(tt.want...)
		})
	}
}

// The KMS keeps only two versions of its key, so each key is lost at the second rotation after it.
func TestEightRotations(t *testing.T) {
	s := newSimulation(t)
	s.pass(time.Hour)
	for i := 1; i <= 8; i++ {
		if i >= 2 {
			s.lost[fmt.Sprintf("k%d", i-2)] = true
		}
		s.rotate(fmt.Sprintf("k%d", i))
		s.pass(3 * time.Hour)
	}
	if e := s.plugin.entry; e.Status != contract.Healthy || !slices.Equal(e.Lost, []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}) {
		t.Errorf("%+v", e)
	}
	if n := len(s.plugin.trips.samples.Kept); n != 9 {
		t.Errorf("%d samples are kept", n)
	}
	s.rotate("k9")
	s.lost["k7"] = true
	s.pass(3 * time.Hour)
	if e := s.plugin.entry; !slices.Equal(e.Lost, []string{"k1", "k2", "k3", "k4", "k5", "k6", "k7"}) {
		t.Errorf("%+v", e)
	}
	t.Log(strings.Join(s.reports, "\n"))
}

// A day has 288 round trips of one Encrypt and two Decrypt calls, with former keys or without.
func TestCallsOfADay(t *testing.T) {
	for _, rotations := range []int{0, 1, 5} {
		s := newSimulation(t)
		s.pass(time.Hour)
		for i := range rotations {
			s.rotate(fmt.Sprintf("k%d", i+1))
			s.pass(time.Hour)
		}
		clear(s.calls)
		s.pass(24 * time.Hour)
		if s.calls["Encrypt"] != 288 || s.calls["Decrypt"] != 2*288 {
			t.Errorf("after %d rotations: %v", rotations, s.calls)
		}
		want := 288
		if rotations > 0 {
			want /= 2 // the samples take turns
		}
		if n := s.calls["kept "+s.keyID]; n != want {
			t.Errorf("after %d rotations the first sample of the key was decrypted %d times, want %d", rotations, n, want)
		}
	}
}

// restart returns the simulation of the next process, which starts after a duration without a reporter.
func (s *simulation) restart(away time.Duration) *simulation {
	s.Helper()
	file := s.TempDir() + "/samples"
	r := &Reporter{samples: newSink(nil), state: &state{}, plugins: []*plugin{s.plugin}}
	r.save(s.now, true)
	if err := writeState(file, <-r.samples.latest); err != nil {
		s.Fatal(err)
	}
	next := newSimulation(s.T)
	next.now, next.keyID, next.lost = s.now.Add(away), s.keyID, s.lost
	kept, err := readState(file, next.now)
	if err != nil {
		s.Fatal(err)
	}
	next.plugin.trips.samples = kept.Plugins[next.plugin.identity.String()]
	next.plugin.trips.request = s.plugin.trips.request // the request is still in the configuration file
	return next
}

// Samples of the former process reveal changes that happened while no reporter ran.
func TestSamplesOutliveTheProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		away  time.Duration
		lost  string
		keyID string
		want  []string
	}{
		"nothing changed":                    {time.Minute, "", "k0", []string{"healthy k0"}},
		"the key was replaced":               {time.Minute, "k0", "k0", []string{"unhealthy k0 RoundTripMismatch"}},
		"the key was replaced, days ago":     {50 * time.Hour, "k0", "k0", []string{"unhealthy k0 RoundTripMismatch"}},
		"rotated":                            {time.Minute, "", "k1", []string{"healthy k1"}},
		"rotated, and the former key lost":   {time.Minute, "k0", "k1", []string{"unhealthy k1 RoundTripMismatch"}},
		"so, while no reporter ran for long": {2 * time.Hour, "k0", "k1", []string{"healthy k1 lost k0"}},
		"so, for more than a week":           {8 * 24 * time.Hour, "k0", "k1", []string{"healthy k1"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := newSimulation(t)
			before.pass(time.Hour)
			after := before.restart(tt.away)
			after.rotate(tt.keyID)
			after.lost[tt.lost] = true
			after.pass(time.Hour)
			after.expect(tt.want...)
		})
	}
}

// A fulfilled request stays in the file, and a former key may be lost for days. A restart must not repeat a refused
// Decrypt, because aws-encryption-provider counts that against its health.
func TestLostKeyIsNotTriedSoonerAfterARestart(t *testing.T) {
	s := newSimulation(t)
	s.pass(time.Hour)
	s.rotate("k1")
	s.pass(time.Hour)
	s.lost["k0"] = true
	s.plugin.trips.request = "r"
	s.pass(24 * time.Hour)
	next := s.restart(time.Minute)
	next.pass(6 * time.Hour)
	if e := next.plugin.entry; next.calls["kept k0"] != 0 || e.Requested != "r" || !slices.Equal(e.Lost, []string{"k0"}) {
		t.Errorf("after a restart: %v, %+v", next.calls, e)
	}
}

// A failure that a former process saw is no evidence against the plugin now: nodes may be restarted when a key is
// restored.
func TestRestoredKeyIsTriedAtOnceAfterARestart(t *testing.T) {
	for _, current := range []string{"k0", "k1"} {
		s := newSimulation(t)
		s.pass(time.Hour)
		s.lost["k0"] = true
		s.rotate(current)
		s.pass(5 * time.Hour)
		if e := s.plugin.entry; e.Status != contract.Unhealthy {
			t.Errorf("%s: k0 is lost: %+v", current, e)
		}
		s.lost["k0"] = false
		next := s.restart(time.Minute)
		next.pass(time.Hour)
		next.expect("healthy " + current)
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
			if err := writeState(file, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if s, err := readState(file, noon); len(s.Plugins) != 0 || err == nil && name != "null" {
				t.Errorf("%+v, %v", s, err)
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
				s.rotate(fmt.Sprintf("k%d", i))
				s.pass(time.Hour)
			}
			s.lost["k0"], s.lost["k1"] = true, true
			clear(s.calls)
			s.plugin.trips.request = "r"
			trips := 0
			for ; s.plugin.entry.Requested != "r" && trips < 9; trips++ {
				s.pass(s.probes.Interval.Duration)
			}
			e := s.plugin.entry
			if trips != tt.trips || !slices.Equal(e.Lost, []string{"k0", "k1"}) || s.calls["Decrypt"] != trips+tt.opened {
				t.Errorf("after %d round trips %v, %+v", trips, s.calls, e)
			}
		})
	}
}
