package reporter

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	// tripRetry is the shortest time between two round trips while the last one failed or could
	// not be made, so that a recovery is reported as fast as the fault was.
	tripRetry = 15 * time.Second
	// tripGap is that of a plugin whose key_id alternates.
	tripGap = time.Minute
	// notMadeBound is how many round trips in a row that could not be made are the plugin's error.
	notMadeBound = 3
)

// trips is the schedule and the verdict of one plugin's round trips. Its transitions are
// observe, due, begin and end.
type trips struct {
	last probe.Trip // the verdict that stands; none is not Made
	busy bool

	at        time.Time // when the last began; zero before the first
	unhealthy bool      // Status was not ok at the last one
	failed    bool      // the last one failed, or could not be made
	notMade   int       // how many in a row could not be made while Status was answered and the reporter ran

	keys keyIDs
}

// observe records a probe's result. A plugin that does not answer Status has that error: round
// trips that could not be made before are no other one.
func (t *trips) observe(now time.Time, interval time.Duration, r probe.Result) {
	t.keys.see(now, interval, r.KEKID)
	if !r.Answered {
		t.notMade = 0
	}
}

// due reports whether to make a round trip after a probe's result: the first one, one each
// interval, one when the plugin named another key_id since or turned unhealthy, to report the cause
// with it, and, while the last one failed or could not be made, one at each probe, but at most
// each tripRetry, or each tripGap while its key_id alternates. The plugin must have answered. A new
// connection makes none due: it is not a new process.
func (t *trips) due(now time.Time, every time.Duration, r probe.Result) bool {
	since := now.Sub(t.at)
	switch {
	case every == 0 || t.busy || !r.Answered:
		return false
	case t.at.IsZero() || since >= every:
		return true
	}
	changed := t.keys.changed.After(t.at)
	retry := t.failed || r.Status != contract.Healthy && !t.unhealthy
	if t.keys.alternates {
		return (changed || retry) && since >= tripGap
	}
	return changed || retry && since >= tripRetry
}

func (t *trips) begin(now time.Time, r probe.Result) {
	t.busy, t.at, t.unhealthy = true, now, r.Status != contract.Healthy
}

// end stores the outcome. Only one that was made replaces a verdict; several in a row that could
// not be made are one.
func (t *trips) end(now probe.Trip) {
	t.busy = false
	t.failed = !now.Made || now.Status != contract.Healthy
	switch {
	case now.Made:
		t.last, t.notMade = now, 0
		return
	case now.Stalled:
		return
	}
	if t.notMade++; t.notMade >= notMadeBound {
		t.last = probe.Trip{
			Made: true, Status: contract.Error, Reason: contract.Unavailable,
			Detail: contract.CleanDetail(fmt.Sprintf("the connection broke during each of the last %d round trips, while "+
				"Status was answered: %s", t.notMade, now.Detail)),
		}
	}
}

func (t *trips) standing() probe.Trip {
	if v := t.keys.verdict(); v.Made {
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
