package reporter

import (
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// tripGap is the shortest time between two round trips for changes of one plugin, and
// after any round trip of one that is unhealthy.
const tripGap = time.Minute

// trips is the state of one plugin's round trips.
type trips struct {
	last probe.Trip // the last verdict; none is not Made
	busy bool
	void bool // the running one uses settings that are no longer in force

	at         time.Time // when the last began; zero before the first
	stretch    float64   // of the interval after it, so that replicas differ
	changedAt  time.Time // when one last began for a change of the plugin
	kekID      string    // the KEK ID at the last one
	connection int
	unhealthy  bool
	again      bool // the last one was not made, since the reporter did not run
}

// due reports whether to make a round trip after a probe's result: the first one, one each
// interval, one when the plugin became unhealthy, was restarted or reported another key, or
// when the reporter did not run during the last, and one each tripGap while it is unhealthy.
// The plugin must have answered.
func (t *trips) due(now time.Time, every time.Duration, r probe.Result) bool {
	switch {
	case every == 0 || t.busy || !r.Answered:
		return false
	case t.at.IsZero() || !now.Before(t.next(every)):
		return true
	}
	unhealthy := r.Status != health.Healthy
	changed := t.again || r.KEKID != t.kekID && r.KEKID != "" || r.Connection != t.connection || unhealthy && !t.unhealthy
	failed := t.last.Made && t.last.Status != health.Healthy
	return changed && now.Sub(t.changedAt) >= tripGap || (unhealthy || failed) && now.Sub(t.at) >= tripGap
}

// next is when one is due by an interval, which may have changed since the last.
func (t *trips) next(every time.Duration) time.Time {
	return t.at.Add(time.Duration(float64(every) * t.stretch))
}

// begin records that a round trip begins after a result.
func (t *trips) begin(now time.Time, every time.Duration, r probe.Result) {
	if now.Before(t.next(every)) {
		t.changedAt = now
	}
	t.busy, t.again, t.at, t.stretch = true, false, now, float64(jitter(every))/float64(every)
	t.kekID, t.connection, t.unhealthy = r.KEKID, r.Connection, r.Status != health.Healthy
}

// end stores the outcome. A round trip that was not made keeps the previous verdict.
func (t *trips) end(now probe.Trip) {
	t.busy, t.again = false, now.Stalled
	if now.Made && !t.void {
		t.last = now
	}
	t.void = false
}

// reset clears the state, for a plugin whose role changed: a Read plugin may reject
// Encrypt.
func (t *trips) reset() { *t = trips{busy: t.busy, void: t.busy} }

// standing is the verdict to combine with a probe's result. A round trip made while
// Status was not ok is no longer valid when Status is ok again.
func (t *trips) standing(r probe.Result) probe.Trip {
	if t.unhealthy && r.Status == health.Healthy {
		return probe.Trip{}
	}
	return t.last
}
