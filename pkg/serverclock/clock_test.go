package serverclock

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/utils/clock"
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
		if got := c.Now().Sub(fake.Now()); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// A request that reached its own deadline does not show that the API server is away: a webhook may be slow.
func TestUnansweredRequestsAreThoseThatTheServerDoesNotAnswer(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ends":
			panic(http.ErrAbortHandler)
		case "/hangs":
			<-end
		case "/refuses":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	defer close(end)
	for url, want := range map[string]bool{
		"http://" + free.Addr().String(): true,
		server.URL + "/ends":             true,
		server.URL + "/hangs":            false,
		server.URL + "/refuses":          false,
	} {
		c := New(clock.RealClock{})
		before := c.Now()
		client := http.Client{Transport: c.Wrap(http.DefaultTransport), Timeout: time.Second}
		response, err := client.Get(url)
		if err == nil {
			_ = response.Body.Close()
		}
		if at := c.Unanswered(); at.IsZero() == want || want && at.Before(before) {
			t.Errorf("%s: %v, and unanswered at %v", url, err, at)
		}
	}
}
