package serverclock

import (
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheServersClockCounts(t *testing.T) {
	now := time.Date(2026, 5, 8, 12, 34, 56, 700_000_000, time.UTC)
	for name, tt := range map[string]struct {
		date string
		want time.Duration
		ok   bool
	}{
		"the same":     {"Fri, 08 May 2026 12:34:56 GMT", 0, true},
		"a bit behind": {"Fri, 08 May 2026 12:34:53 GMT", 0, true},
		"ahead":        {"Fri, 08 May 2026 13:34:56 GMT", time.Hour - time.Second, true},
		"behind":       {"Fri, 08 May 2026 12:24:57 GMT", -10 * time.Minute, true},
		"none":         {"", 0, false},
	} {
		if got, ok := offsetOf(tt.date, now); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %s, %t", name, got, ok)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An API server that was blocked may respond with an outdated time.
func TestTheServersClockIsNotTakenFromALateResponse(t *testing.T) {
	began := time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		took, ahead, want time.Duration
	}{
		{time.Second, time.Hour, time.Hour},
		{16 * time.Second, 0, 0},
		{16 * time.Second, time.Hour, 0},
	} {
		fake := clocktesting.NewFakePassiveClock(began)
		c := New(fake)
		l := c.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Date": {began.Add(tt.ahead + time.Second).Format(http.TimeFormat)}}
			fake.SetTime(began.Add(tt.took))
			return &http.Response{Header: header}, nil
		}))
		if _, err := l.RoundTrip(&http.Request{}); err != nil {
			t.Fatal(err)
		}
		if got := c.Offset(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
