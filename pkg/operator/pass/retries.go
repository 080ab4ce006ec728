package pass

import (
	"time"

	"k8s.io/utils/clock"
)

// Retries say when to try again what failed: later each time. It is for one
// goroutine.
type Retries struct {
	clock       clock.PassiveClock
	first, last time.Duration
	all         map[string]retry
}

type retry struct {
	wait  time.Duration
	until time.Time
	text  string
}

// NewRetries makes Retries that wait for first, and then twice as long each time,
// up to last.
func NewRetries(clock clock.PassiveClock, first, last time.Duration) *Retries {
	return &Retries{clock: clock, first: first, last: last, all: map[string]retry{}}
}

// Failed keeps that something failed. It returns when to try again, and whether the
// reason is another than the last time.
func (r *Retries) Failed(name string, err error) (until time.Time, news bool) {
	was := r.all[name]
	now := retry{wait: min(r.last, max(r.first, 2*was.wait)), text: err.Error()}
	now.until = r.clock.Now().Add(now.wait)
	r.all[name] = now
	return now.until, now.text != was.text
}

// Waiting says until when something that failed is not to be tried again; false
// where it may be.
func (r *Retries) Waiting(name string) (until time.Time, waiting bool) {
	was, failed := r.all[name]
	return was.until, failed && r.clock.Now().Before(was.until)
}

// Done forgets that something failed, and says whether it had.
func (r *Retries) Done(name string) bool {
	_, failed := r.all[name]
	delete(r.all, name)
	return failed
}
