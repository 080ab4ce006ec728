package reporter

import (
	"fmt"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	// tripRetry is the shortest time between two round trips while the last one failed, or after a
	// request, so that a recovery is reported as fast as the fault was.
	tripRetry = 15 * time.Second
	// tripGap is that of a plugin whose key_id alternates.
	tripGap = time.Minute
	// mostTripRetry bounds the time after round trips that could not be made. The plugin may end at
	// each of them, so it doubles from tripRetry on.
	mostTripRetry = 5 * time.Minute
	// mostRetries is how many round trips in a row may fail until the next is one of the interval's: a plugin may count
	// what it refuses against its health, and that of other keys (aws-encryption-provider).
	mostRetries = 20
	// notMadeBound is how many round trips in a row that could not be made are the plugin's error: the
	// connection may have been lost by chance during one.
	notMadeBound = 2
	// tripIntervals bounds a round trip: the entry that waits for it must not become stale.
	tripIntervals = contract.StaleIntervals - 1
)

// trips is the schedule and the verdict of one plugin's round trips. Its transitions are
// observe, due, begin and end.
type trips struct {
	last probe.Trip // the last one that was begun since the plugin was in error, and made
	busy bool
	void bool // the plugin was in error since the one under way began

	at        time.Time // when the last began; zero before the first
	good      time.Time // when the last successful one ended, by the wall clock
	unhealthy bool      // Status was not ok at the last one
	failures  int       // how many in a row failed
	notMade   int       // how many in a row could not be made while the reporter ran
	why       string    // the error of the last of these

	request string    // that the file has; empty: none
	probing string    // that the probe under way was begun for
	asked   string    // that the round trip under way was begun for
	began   time.Time // when the first one for it was begun

	keys    keyIDs
	samples samples
}

// observe records a probe's result. What was known of a plugin that is in error does not count for
// what returns, but for the round trips that could not be made: they may be its cause.
func (t *trips) observe(now time.Time, interval time.Duration, r probe.Result) {
	if r.Gone || r.Status == contract.Error || r.Restarted {
		t.last, t.void, t.keys, t.failures = probe.Trip{}, true, keyIDs{}, 0
		t.samples.afterError()
	}
	t.keys.see(now, interval, r.KEKID)
	t.samples.named(r.KEKID, now)
	if !r.Answered && !t.busy {
		t.samples.Answered = t.probing // no round trip can be made
	}
}

// due reports whether to make a round trip after a probe's result: one at once for each key_id and after each error,
// one each interval, one on request, one when the plugin turned unhealthy, to report the cause with it, or, after one
// that failed, healthy, and up to mostRetries after one that failed; but at most each tripRetry, or each tripGap while
// its key_id alternates. The plugin must have answered. A new connection makes none due: it is not a new process.
func (t *trips) due(now time.Time, every time.Duration, r probe.Result) bool {
	since := now.Sub(t.at)
	switch {
	case every == 0 || t.busy || !r.Answered:
		return false
	case t.at.IsZero() || t.pending() && since >= t.gap():
		return true
	case t.notMade >= notMadeBound:
		return since >= backoff(tripRetry, t.notMade-notMadeBound, mostTripRetry)
	case since >= every || r.Status == contract.Healthy && !t.seen(r) && !t.keys.alternates:
		return true
	}
	bad, failed := r.Status != contract.Healthy, t.last.Status != contract.Healthy
	turned := bad != t.unhealthy && bad != failed // what the last one does not explain
	retry := turned || failed && t.failures < mostRetries || t.samples.retry(now)
	return since >= t.gap() && (t.keys.changed.After(t.at) || retry)
}

// gap is the shortest time between two round trips, but for those that are made at once.
func (t *trips) gap() time.Duration {
	if t.keys.alternates {
		return tripGap
	}
	return tripRetry
}

// seen reports whether a round trip was made under the key_id of a result, since the last error.
func (t *trips) seen(r probe.Result) bool {
	return t.last.Made && (r.KEKID == "" || r.KEKID == t.last.KEKID)
}

// backoff doubles a time, n times.
func backoff(first time.Duration, n int, most time.Duration) time.Duration {
	return min(first<<min(n, 20), most)
}

// begin returns the kept samples that the round trip is to decrypt: for a request all that were not tried for it.
func (t *trips) begin(now time.Time, r probe.Result) []*probe.Sample {
	if t.asked != t.request {
		t.asked, t.began = t.request, now
	}
	t.busy, t.void, t.at, t.unhealthy = true, false, now, r.Status != contract.Healthy
	if t.asked != "" && t.asked != t.samples.Answered {
		return t.samples.untried(t.began)
	}
	return t.samples.next(now)
}

// end stores the outcome, and reports whether to probe at once: one that could not be made shows
// nothing about the plugin, and one under another key_id nothing about the key_id that Status named.
func (t *trips) end(now time.Time, interval time.Duration, trip probe.Trip) (again bool) {
	t.busy = false
	switch {
	case trip.Made:
		again = t.keys.last != "" && trip.KEKID != t.keys.last
		if trip.Named { // else a probe may have seen another one since
			t.keys.see(now, interval, trip.KEKID)
			t.samples.named(trip.KEKID, now)
		}
		t.samples.end(now, trip)
		if t.failures++; trip.Status == contract.Healthy {
			t.failures = 0
		}
		if t.notMade = 0; t.asked == "" || trip.Status != contract.Healthy || len(t.samples.untried(t.began)) == 0 {
			t.samples.Answered = t.asked
		}
		failed := slices.ContainsFunc(trip.Kept, func(o probe.Opened) bool { return o.Detail != "" })
		if trip.Status == contract.Healthy && !failed {
			t.good = now.Round(0)
		}
		again = again || trip.Ended()
		if trip.Sealed, trip.Kept = nil, nil; !t.void {
			t.last = trip
		}
	case !trip.Stalled:
		t.notMade++
		t.why, again = trip.Detail, true
		if t.notMade >= notMadeBound {
			t.samples.Answered = t.asked
		}
	}
	return again
}

// pending reports whether no round trip was begun for the request.
func (t *trips) pending() bool {
	return t.request != "" && t.request != t.samples.Answered && !(t.busy && t.asked == t.request)
}

// verdict is that of the round trips on a plugin with this result; not Made: there is none yet.
func (t *trips) verdict(now time.Time, r probe.Result) probe.Trip {
	if v := t.keys.verdict(); v.Made {
		return v
	}
	if t.notMade >= notMadeBound {
		return probe.Trip{
			Made: true, Status: contract.Error, Reason: contract.Unavailable,
			Detail: contract.CleanDetail(fmt.Sprintf("the connection broke during each of the last %d round trips, "+
				"so the plugin may end at this call: %s", t.notMade, t.why)),
		}
	}
	if !t.seen(r) {
		return probe.Trip{}
	}
	if v := t.samples.verdict(now); t.last.Status == contract.Healthy && v.Made {
		return v
	}
	return t.last
}

// keyIDs are the key_ids that a plugin has named, in order.
type keyIDs struct {
	last, before string
	changed      time.Time // when last became it; zero: it is the first
	alternates   bool      // the last two changes came too soon after one another
}

// see records a key_id that the plugin named. Two changes within an interval are one too many:
// kube-apiserver, which compares the key_id of Encrypt with that of Status, is not healthy with
// such a plugin, and encrypts under a key that it then believes to be out of date. A rotation is
// one change.
func (k *keyIDs) see(now time.Time, interval time.Duration, keyID string) {
	// A probe may be late by its timeout. Over a minute, kube-apiserver may have seen none of it.
	interval = min(interval, tripGap)
	soon := func(since time.Duration) bool { return since <= interval+interval/2 }
	switch {
	case keyID == "":
	case k.last == "":
		k.last = keyID
	case keyID == k.last:
		if !soon(now.Sub(k.changed)) {
			k.alternates = false
		}
	default:
		k.alternates = !k.changed.IsZero() && soon(now.Sub(k.changed))
		k.before, k.last, k.changed = k.last, keyID, now
	}
}

// verdict is that on a plugin whose key_id alternates; not Made: it does not.
func (k *keyIDs) verdict() probe.Trip {
	if !k.alternates {
		return probe.Trip{}
	}
	return probe.Trip{Made: true, Status: contract.Unhealthy, Reason: contract.ProtocolViolation,
		Detail: contract.CleanDetail(fmt.Sprintf(
			"key_id changed twice within an interval, between %q and %q: a rotation changes it once",
			contract.Cut(k.before, 128), contract.Cut(k.last, 128)))}
}
