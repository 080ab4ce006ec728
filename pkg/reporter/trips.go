package reporter

import (
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// tripGap is the shortest time between two round trips of one plugin that are not due
// by their interval: while it is unhealthy, or for another change of it.
const tripGap = time.Minute

// trips is the history of one plugin's round trips.
type trips struct {
	last probe.Trip // the verdict that stands; none is not Made
	busy bool
	next time.Time // when one is due by the interval

	at         time.Time // when the last began; zero before the first
	hurried    time.Time // when one last began before its time, or of an unhealthy plugin
	kekID      string    // what the last was made for
	connection int
}

// due says whether a round trip is to be made after a probe's result: the first, one by
// the interval, and one before its time when the plugin became unhealthy, was restarted
// or named another key, and while it is unhealthy; of the latter one a tripGap. The
// plugin must have answered.
func (t *trips) due(now time.Time, every time.Duration, r probe.Result) bool {
	if every == 0 || t.busy || !r.Answered {
		return false
	}
	if t.at.IsZero() || !now.Before(t.next) {
		return true
	}
	changed := r.KEKID != t.kekID && r.KEKID != "" || r.Connection != t.connection
	unhealthy := r.Status != health.Healthy || t.last.Made && t.last.Status != health.Healthy
	return (changed || unhealthy) && now.Sub(t.hurried) >= tripGap
}

// begin notes that a round trip begins after a result.
func (t *trips) begin(now time.Time, every time.Duration, r probe.Result) {
	if now.Before(t.next) || r.Status != health.Healthy {
		t.hurried = now
	}
	t.busy, t.at, t.next = true, now, now.Add(jitter(every))
	t.kekID, t.connection = r.KEKID, r.Connection
}

// end takes the outcome. One that was not made leaves the verdict before it.
func (t *trips) end(now probe.Trip) {
	t.busy = false
	if now.Made {
		t.last = now
	}
}
