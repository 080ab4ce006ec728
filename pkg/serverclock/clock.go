// Package serverclock is the API server's clock, taken from the Date header of its responses. It is for times that
// others judge by that clock: when a condition changed, and when a token expires. No verdict depends on it.
// It also keeps when there was no response, since reporters cannot write then.
package serverclock

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// minOffset is the smallest difference that counts: a Date header has whole seconds, and took some time to arrive.
const minOffset = 5 * time.Second

// Clock is safe for several goroutines.
type Clock struct {
	local      clock.PassiveClock
	offset     atomic.Int64 // of the API server's clock from the local one; zero for less than minOffset
	unanswered atomic.Pointer[time.Time]
}

// New makes a Clock that equals the local one until a response shows another time.
func New(local clock.PassiveClock) *Clock { return &Clock{local: local} }

// Now is the time by the API server's clock.
func (c *Clock) Now() time.Time { return c.local.Now().Add(time.Duration(c.offset.Load())) }

// Unanswered is when a request last had no response, by the local clock; zero if each had one. One that was canceled
// does not count.
func (c *Clock) Unanswered() time.Time { return *cmp.Or(c.unanswered.Load(), &time.Time{}) }

// Wrap returns a transport that reads the Date of each response.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := t.clock.local.Now()
	response, err := t.next.RoundTrip(r)
	if err != nil && !errors.Is(r.Context().Err(), context.Canceled) {
		now := t.clock.local.Now()
		t.clock.unanswered.Store(&now)
	}
	if err != nil || t.clock.local.Since(sent) >= minOffset { // slow: its Date is of an unknown moment in between
		return response, err
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		offset := at.Sub(t.clock.local.Now()).Round(time.Second)
		if offset.Abs() < minOffset {
			offset = 0
		}
		t.clock.offset.Store(int64(offset))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
