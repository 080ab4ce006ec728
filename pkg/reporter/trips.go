package reporter

import (
	"fmt"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	tripRetry     = 15 * time.Second // the shortest time between two round trips after a failed one, or after a request
	tripGap       = time.Minute      // the same for a plugin whose key_id alternates
	mostTripRetry = 5 * time.Minute  // the longest wait after round trips that could not be made
	// mostRetries is how many failed round trips in a row are retried early; later ones wait for the interval. A plugin
	// may count a refused call against its health, and against that of its other keys (aws-encryption-provider).
	mostRetries = 20
	// notMadeBound: after so many round trips in a row that could not be made, not by chance, the plugin is in error.
	notMadeBound = 2
	// tripIntervals bounds a round trip, in probe intervals: the entry that waits for it must not become stale.
	tripIntervals = contract.StaleIntervals - 1
)

// trips is the schedule and the verdict of one plugin's round trips. Its transitions are observe, due, begin and end.
type trips struct {
	last probe.Trip // the last one that was made, if no error since makes it void: see observe
	busy bool
	void bool // the plugin was in error after the current one began, which therefore does not become last

	at        time.Time // when the last one began; zero before the first
	good      time.Time // when the last successful one ended, by the wall clock
	unhealthy bool      // Status was not healthy when the last one began
	failures  int       // how many in a row failed
	notMade   int       // how many in a row could not be made while the reporter ran
	why       string    // the error of the last of these

	request string    // in the file now; empty: none
	probing string    // the request when the last probe began
	asked   string    // the request when the last round trip began
	began   time.Time // when the first round trip for asked began

	keys    keyIDs
	samples samples
}

// observe records a probe's result. After an error without an answer, and after a restart, only round trips that could
// not be made still count. After an error that Status answered, failed ones count, too: they show its cause.
func (t *trips) observe(now time.Time, interval time.Duration, r probe.Result) {
	if lost := !r.Answered || r.Restarted; lost || r.Status == contract.Error {
		t.void, t.keys, t.unhealthy = true, keyIDs{}, !lost && (t.unhealthy || t.last.Failed())
		if lost || !t.last.Failed() {
			t.last, t.failures = probe.Trip{}, 0
		}
		t.samples.recheck = true
	}
	t.keys.see(now, interval, r.KEKID)
	t.samples.named(r.KEKID, now)
	if !r.Answered && !t.busy {
		t.samples.Answered = t.probing // no round trip can be made
	}
}

// due reports whether to make a round trip after a probe that the plugin answered. One is due at once for each key_id,
// after each error, once more if it could not be made, and each interval. Others are due at most each gap: on request;
// up to mostRetries times after a failed one; for a kept sample that makes the plugin unhealthy; when Status turned
// unhealthy, to report the cause, or healthy after a failed one. A new connection alone does not mean a new process.
func (t *trips) due(now time.Time, every time.Duration, r probe.Result) bool {
	since := now.Sub(t.at)
	switch {
	case every == 0 || t.busy || !r.Answered:
		return false
	case t.at.IsZero() || t.pending() && since >= t.gap():
		return true
	case t.notMade >= notMadeBound:
		return since >= backoff(tripRetry, t.notMade-notMadeBound, mostTripRetry)
	case since >= every || t.notMade > 0 || r.Status == contract.Healthy && !t.seen(r) && !t.keys.alternates:
		return true
	}
	bad, failed := r.Status != contract.Healthy, t.last.Failed()
	turned := bad != t.unhealthy && bad != failed // a change of Status that the last round trip does not explain
	// Both have one bound: a failed round trip tries no sample, so the time of its next try stays.
	retry := turned || t.failures < mostRetries && (failed || t.samples.retry(now))
	return since >= t.gap() && (t.keys.changed.After(t.at) || retry)
}

// gap is the shortest time between two round trips, except those that are made at once.
func (t *trips) gap() time.Duration {
	if t.keys.alternates {
		return tripGap
	}
	return tripRetry
}

// seen reports whether last was made under the key_id of a result.
func (t *trips) seen(r probe.Result) bool {
	return t.last.Made && (r.KEKID == "" || r.KEKID == t.last.KEKID)
}

func backoff(first time.Duration, n int, most time.Duration) time.Duration {
	return min(first<<min(n, 20), most)
}

// begin records that a round trip begins, and returns the kept samples that it decrypts: for a request that is not
// answered yet, all that were not tried for it.
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

// end stores the outcome of a round trip, and reports whether to probe at once: after one that could not be made, or
// that broke the connection, and after one under another key_id than Status named, about which it shows nothing.
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

// pending reports whether the request is not answered yet, and no round trip for it is under way.
func (t *trips) pending() bool {
	return t.request != "" && t.request != t.samples.Answered && !(t.busy && t.asked == t.request)
}

// verdict is what the round trips show about a plugin with this probe result. Made is false if they show nothing yet.
func (t *trips) verdict(now time.Time, r probe.Result) probe.Trip {
	if t.keys.alternates {
		return fault(contract.Unhealthy, contract.ProtocolViolation,
			"key_id changed twice within an interval, between %q and %q: a rotation changes it once",
			contract.Cut(t.keys.before, 128), contract.Cut(t.keys.last, 128))
	}
	if t.notMade >= notMadeBound {
		return fault(contract.Error, contract.Unavailable, "the connection broke during each of the last %d round trips, "+
			"so the plugin may end at this call: %s", t.notMade, t.why)
	}
	if !t.seen(r) {
		return probe.Trip{}
	}
	if v := t.samples.verdict(now); t.last.Status == contract.Healthy && v.Made {
		return v
	}
	return t.last
}

func fault(status contract.Status, reason contract.Reason, format string, of ...any) probe.Trip {
	return probe.Trip{Made: true, Status: status, Reason: reason, Detail: contract.CleanDetail(fmt.Sprintf(format, of...))}
}

// keyIDs are the key_ids that a plugin has named, in order.
type keyIDs struct {
	last, before string
	changed      time.Time // when last was first named; zero for the first key_id
	alternates   bool      // the last two changes came too soon after one another
}

// see records a key_id that the plugin named. A rotation changes it once; two changes within an interval are a fault:
// kube-apiserver, which compares the key_ids of Encrypt and Status, is then not healthy.
func (k *keyIDs) see(now time.Time, interval time.Duration, keyID string) {
	// kube-apiserver calls Status each minute, so slower changes look like rotations to it. A probe may be late by its
	// timeout, hence half an interval more.
	interval = min(interval, tripGap)
	soon := func(since time.Duration) bool { return since <= interval+interval/2 }
	switch {
	case keyID == "":
	case k.last == "":
		k.last = keyID
	case keyID == k.last:
		k.alternates = k.alternates && soon(now.Sub(k.changed))
	default:
		k.alternates = soon(now.Sub(k.changed)) // not after the first one, whose time is zero
		k.before, k.last, k.changed = k.last, keyID, now
	}
}
