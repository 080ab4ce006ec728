package reporter

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

var tripNoon = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func answeredAs(status health.Status, kekID string, connection int) probe.Result {
	return probe.Result{Answered: true, Status: status, KEKID: kekID, Connection: connection}
}

func TestRoundTripsAreDueByTheirIntervalAndByChanges(t *testing.T) {
	healthy, failed := probe.Trip{Made: true, Status: health.Healthy}, probe.Trip{Made: true, Status: health.Unhealthy}
	before := func(last probe.Trip, changedAt time.Duration) trips {
		h := trips{last: last, at: tripNoon, stretch: 1, kekID: "k", connection: 1}
		if changedAt != 0 {
			h.changedAt = tripNoon.Add(-changedAt)
		}
		return h
	}
	for name, tt := range map[string]struct {
		history trips
		after   time.Duration
		every   time.Duration
		result  probe.Result
		want    bool
	}{
		"the first":                                 {trips{}, 0, time.Minute, answeredAs(health.Healthy, "k", 1), true},
		"the first of an unhealthy one":             {trips{}, 0, time.Minute, answeredAs(health.Unhealthy, "", 1), true},
		"off":                                       {trips{}, 0, 0, answeredAs(health.Healthy, "k", 1), false},
		"no answer":                                 {trips{}, 0, time.Minute, probe.Result{Status: health.Error}, false},
		"one is under way":                          {trips{busy: true}, 0, time.Minute, answeredAs(health.Healthy, "k", 1), false},
		"not yet":                                   {before(healthy, 0), 4 * time.Minute, 5 * time.Minute, answeredAs(health.Healthy, "k", 1), false},
		"by the interval":                           {before(healthy, 0), 5 * time.Minute, 5 * time.Minute, answeredAs(health.Healthy, "k", 1), true},
		"a shorter interval since":                  {before(healthy, 0), time.Minute, time.Minute, answeredAs(health.Healthy, "k", 1), true},
		"a longer interval since":                   {before(healthy, 0), time.Hour, 24 * time.Hour, answeredAs(health.Healthy, "k", 1), false},
		"another key":                               {before(healthy, 0), time.Second, 5 * time.Minute, answeredAs(health.Healthy, "l", 1), true},
		"no key named":                              {before(healthy, 0), time.Second, 5 * time.Minute, answeredAs(health.Healthy, "", 1), false},
		"restarted":                                 {before(healthy, 0), time.Second, 5 * time.Minute, answeredAs(health.Healthy, "k", 2), true},
		"turned unhealthy":                          {before(healthy, 0), time.Second, 5 * time.Minute, answeredAs(health.Unhealthy, "k", 1), true},
		"unhealthy by the trip before":              {before(failed, 0), time.Minute, 5 * time.Minute, answeredAs(health.Healthy, "k", 1), true},
		"so, less than a minute ago":                {before(failed, 0), 59 * time.Second, 5 * time.Minute, answeredAs(health.Healthy, "k", 1), false},
		"unhealthy, less than a minute":             {before(failed, 30*time.Second), 29 * time.Second, 5 * time.Minute, answeredAs(health.Unhealthy, "k", 1), false},
		"flapping, less than a minute":              {before(healthy, 30*time.Second), 29 * time.Second, 5 * time.Minute, answeredAs(health.Healthy, "k", 2), false},
		"flapping, but due by its clock":            {before(healthy, -5*time.Minute), 5 * time.Minute, 5 * time.Minute, answeredAs(health.Healthy, "k", 9), true},
		"changed key, the last change was long ago": {before(healthy, time.Hour), time.Second, 5 * time.Minute, answeredAs(health.Healthy, "l", 1), true},
		"an error that the process gave":            {before(healthy, 0), time.Second, 5 * time.Minute, answeredAs(health.Error, "", 1), true},
		"gone while one is not under way":           {before(healthy, 0), time.Hour, 5 * time.Minute, probe.Result{Gone: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.history.due(tripNoon.Add(tt.after), tt.every, tt.result); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// One during which the reporter did not run has no result: it is made again soon, not after the
// interval, which may be a day. While that repeats itself, once a minute.
func TestRoundTripDuringWhichTheReporterDidNotRunIsMadeAgain(t *testing.T) {
	const every = 24 * time.Hour
	ok := answeredAs(health.Healthy, "k", 1)
	var h trips
	h.begin(tripNoon, every, ok)
	h.end(probe.Trip{Stalled: true})
	for _, tt := range []struct {
		after time.Duration
		want  bool
		trip  probe.Trip
	}{
		{30 * time.Second, true, probe.Trip{Stalled: true}},
		{time.Minute, false, probe.Trip{}},
		{90 * time.Second, true, probe.Trip{Made: true, Status: health.Healthy}},
		{time.Hour, false, probe.Trip{}},
	} {
		now := tripNoon.Add(tt.after)
		if got := h.due(now, every, ok); got != tt.want {
			t.Fatalf("after %s: due is %t", tt.after, got)
		}
		if tt.want {
			h.begin(now, every, ok)
			h.end(tt.trip)
		}
	}
}

// An unhealthy plugin gets one round trip a minute, however often it is probed and
// whichever check found it unhealthy.
func TestUnhealthyPluginIsTriedOnceAMinute(t *testing.T) {
	for name, of := range map[string]func(second int) (probe.Result, health.Status){
		"Status":               func(int) (probe.Result, health.Status) { return answeredAs(health.Unhealthy, "k", 1), health.Unhealthy },
		"Status alone":         func(int) (probe.Result, health.Status) { return answeredAs(health.Unhealthy, "k", 1), health.Healthy },
		"the round trip alone": func(int) (probe.Result, health.Status) { return answeredAs(health.Healthy, "k", 1), health.Unhealthy },
		"restarts all the time": func(second int) (probe.Result, health.Status) {
			return answeredAs(health.Unhealthy, "k", second), health.Unhealthy
		},
		"another key all the time": func(second int) (probe.Result, health.Status) {
			return answeredAs(health.Healthy, string(rune('a'+second%26)), 1), health.Healthy
		},
	} {
		for _, every := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
			var h trips
			made := 0
			for second := 0; second < 600; second += 5 {
				now := tripNoon.Add(time.Duration(second) * time.Second)
				r, verdict := of(second)
				if h.due(now, every, r) {
					made++
					h.begin(now, every, r)
					h.end(probe.Trip{Made: true, Status: verdict})
				}
			}
			most := 12 // an interval of a minute is up to a tenth shorter
			if strings.HasSuffix(name, "all the time") {
				most += int(10 * time.Minute / every) // those by the interval are made in addition to those for changes
			}
			if made < 9 || made > most {
				t.Errorf("%s, every %s: %d round trips in ten minutes", name, every, made)
			}
		}
	}
}

func TestVerdictJoinsProbeAndRoundTrip(t *testing.T) {
	ok := probe.Result{Answered: true, Status: health.Healthy}
	sealed := probe.Result{Answered: true, Status: health.Unhealthy, Reason: health.ReportedUnhealthy, Detail: `healthz is "err", not "ok"`}
	denied := probe.Trip{Made: true, Status: health.Unhealthy, Reason: health.PermissionDenied, Detail: "Encrypt: PermissionDenied: no role"}
	lost := probe.Result{Status: health.Error, Reason: health.ConnectFailed, Detail: "cannot connect"}
	for name, tt := range map[string]struct {
		result probe.Result
		trip   probe.Trip
		status health.Status
		reason health.Reason
		detail string
	}{
		"no trip":              {ok, probe.Trip{}, health.Healthy, "", ""},
		"good trip":            {ok, probe.Trip{Made: true, Status: health.Healthy}, health.Healthy, "", ""},
		"failed trip":          {ok, denied, health.Unhealthy, health.PermissionDenied, "Encrypt: PermissionDenied: no role"},
		"lost during the trip": {ok, probe.Trip{Made: true, Status: health.Error, Reason: health.Unavailable, Detail: "x"}, health.Error, health.Unavailable, "x"},
		"both":                 {sealed, denied, health.Unhealthy, health.PermissionDenied, `healthz is "err", not "ok"; Encrypt: PermissionDenied: no role`},
		"a reason of its own":  {probe.Result{Answered: true, Status: health.Unhealthy, Reason: health.ProtocolViolation, Detail: "v3"}, denied, health.Unhealthy, health.ProtocolViolation, "v3; Encrypt: PermissionDenied: no role"},
		"no answer":            {lost, denied, health.Error, health.ConnectFailed, "cannot connect"},
		"good trip, unhealthy": {sealed, probe.Trip{Made: true, Status: health.Healthy}, health.Unhealthy, health.ReportedUnhealthy, `healthz is "err", not "ok"`},
	} {
		if status, reason, detail := verdict(tt.result, tt.trip); status != tt.status || reason != tt.reason || detail != tt.detail {
			t.Errorf("%s: %s, %s, %q", name, status, reason, detail)
		}
	}
}

func TestVerdictOfARoundTripEndsWithItsSettings(t *testing.T) {
	denied := probe.Trip{Made: true, Status: health.Unhealthy, Reason: health.PermissionDenied}
	healthy, unhealthy := answeredAs(health.Healthy, "k", 1), answeredAs(health.Unhealthy, "k", 1)
	var h trips
	h.begin(tripNoon, time.Minute, unhealthy)
	h.end(denied)
	if got := h.standing(unhealthy); got != denied {
		t.Errorf("while Status is not ok: %+v", got)
	}
	if got := h.standing(healthy); got.Made {
		t.Errorf("Status is ok again: %+v", got)
	}

	h = trips{}
	h.begin(tripNoon, time.Minute, healthy)
	h.reset() // a Read plugin now
	h.end(denied)
	if got := h.standing(healthy); got.Made || h.busy || !h.due(tripNoon, time.Minute, healthy) {
		t.Errorf("the role changed meanwhile: %+v", h)
	}
	h.begin(tripNoon, time.Minute, healthy)
	h.end(denied)
	if got := h.standing(healthy); got != denied {
		t.Errorf("the next counts: %+v", got)
	}
}
