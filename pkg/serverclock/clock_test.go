package serverclock

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Each response comes after one an hour ahead. An API server that was blocked may respond with an outdated time.
func TestTheServersClockCounts(t *testing.T) {
	began := time.Date(2026, 5, 8, 12, 34, 56, 700_000_000, time.UTC)
	const ahead = time.Hour - time.Second
	for name, tt := range map[string]struct {
		date       string
		took, want time.Duration
	}{
		"the same":           {"Fri, 08 May 2026 12:34:56 GMT", 0, 0},
		"a bit behind":       {"Fri, 08 May 2026 12:34:53 GMT", 0, 0},
		"behind by 5 s":      {"Fri, 08 May 2026 12:34:52 GMT", 0, -5 * time.Second},
		"ahead":              {"Fri, 08 May 2026 13:34:56 GMT", 0, ahead},
		"behind":             {"Fri, 08 May 2026 12:24:57 GMT", 0, -10 * time.Minute},
		"none":               {"", 0, ahead},
		"within 5 s":         {"Fri, 08 May 2026 12:35:00 GMT", 4 * time.Second, 0},
		"of a late response": {"Fri, 08 May 2026 12:34:56 GMT", 5 * time.Second, ahead},
	} {
		fake := clocktesting.NewFakePassiveClock(began)
		c := New(fake)
		ask := func(date string, took time.Duration) {
			l := c.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				fake.SetTime(fake.Now().Add(took))
				return &http.Response{Header: http.Header{"Date": {date}}}, nil
			}))
			if _, err := l.RoundTrip(&http.Request{}); err != nil {
				t.Fatal(err)
			}
		}
		ask("Fri, 08 May 2026 13:34:56 GMT", 0)
		ask(tt.date, tt.took)
		if got := c.Now().Sub(fake.Now()); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// One that was given up shows nothing.
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
		case "/hangs", "/canceled":
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
		server.URL + "/hangs":            true,
		server.URL + "/canceled":         false,
		server.URL + "/refuses":          false,
	} {
		c := New(clock.RealClock{})
		before := c.Now()
		client := http.Client{Transport: c.Wrap(http.DefaultTransport), Timeout: time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if strings.HasSuffix(url, "/canceled") {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		response, err := client.Do(request)
		if cancel(); err == nil {
			_ = response.Body.Close()
		}
		if at := c.Unanswered(); at.IsZero() == want || want && at.Before(before) {
			t.Errorf("%s: %v, and unanswered at %v", url, err, at)
		}
	}
}
