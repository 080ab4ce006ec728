package source

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// minOffset is what a clock may differ by: the Date header is cut to the second,
// and took some time to arrive.
const minOffset = 5 * time.Second

// serverClock learns the API server's clock from its answers. Reports are made on
// its nodes; the clock of an admin's laptop has no say in how old they are.
type serverClock struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	offset time.Duration
}

func (s *serverClock) hear(date string) {
	if offset, ok := offset(date, s.clock.Now()); ok {
		s.mu.Lock()
		s.offset = offset
		s.mu.Unlock()
	}
}

func (s *serverClock) get() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

// offset of a Date header that has just arrived, zero where it is small.
func offset(date string, now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(date)
	if err != nil {
		return 0, false
	}
	d := at.Sub(now).Round(time.Second)
	if d.Abs() < minOffset {
		d = 0
	}
	return d, true
}

// listener hands on requests, and listens to the answers' Date.
type listener struct {
	next   http.RoundTripper
	server *serverClock
}

// RoundTrip is http.RoundTripper's.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := l.server.clock.Now()
	response, err := l.next.RoundTrip(r)
	// An answer that was long on its way says what time it was at some moment of it.
	if err == nil && l.server.clock.Since(asked) < minOffset {
		l.server.hear(response.Header.Get("Date"))
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (l *listener) WrappedRoundTripper() http.RoundTripper { return l.next }
