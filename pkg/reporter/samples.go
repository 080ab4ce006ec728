package reporter

import (
	"fmt"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	// mostFormer is how many former keys have a kept sample: an entry reports as many.
	mostFormer = contract.MaxLost
	// mostKeptAnnotations bounds the annotations of a sample that is kept, in bytes, and with them
	// the file.
	mostKeptAnnotations = 4 << 10
	// A sample that was not decrypted is tried again after sampleRetry, doubled each time: the plugin
	// may end at it. One that need not be, and was refused twice, waits as long again as its key is a former one: a
	// plugin may count it against its health, and kube-apiserver is then not ready (aws-encryption-provider: for 30 s).
	sampleRetry     = time.Minute
	mostSampleRetry = time.Hour
	// transientTries is how many tries in a row that show nothing about a key are its loss.
	transientTries = 3
	// owedFor is for how long after a key was last named its sample must be decrypted, or the plugin
	// is unhealthy. Later everything may have been encrypted again.
	owedFor = 24 * time.Hour
	// keptFor is for how long after it was last named a former key has a sample.
	keptFor = 7 * 24 * time.Hour
	// absentFor is for how long no reporter has run if a change of the key meanwhile may have been
	// followed by a migration.
	absentFor = time.Hour
)

// samples are the kept samples of one plugin: the first one of each key.
type samples struct {
	Current string  `json:"current"` // the key ID that Status named last
	Kept    []*kept `json:"kept"`    // at most one of the current key and mostFormer others

	// Absent: no reporter ran for so long before the key was named again that a change is no fault.
	Absent bool `json:"absent,omitempty"`
	// Answered is the last request that was fulfilled. It stands in the configuration for longer than a process.
	Answered string `json:"answered,omitempty"`

	turn    int  // counts round trips, for whose turn it is
	recheck bool // the plugin was in error: the first sample of its key is next
}

// kept is a sample, and what became of it.
type kept struct {
	probe.Sample
	Named time.Time `json:"named"` // when its key was last named
	// Owed: the key was replaced, and the sample was not decrypted since.
	Owed   bool            `json:"owed,omitempty"`
	Tried  time.Time       `json:"tried"`            // when it was last tried
	Failed int             `json:"failed,omitempty"` // tries in a row
	Ended  bool            `json:"ended,omitempty"`  // the plugin may have ended at the last one
	Next   time.Time       `json:"next"`             // when it is tried again, after a failure
	Reason contract.Reason `json:"reason,omitempty"` // of the last failure
	Detail string          `json:"detail,omitempty"`
}

// loaded reports whether samples that were read from a file can be used, and makes their times ages by
// this process' clock. The wall clock may have been set since they were saved, and may be again.
func (s *samples) loaded(now, saved time.Time) bool {
	s.Absent, s.recheck = s.Absent || now.Sub(saved) > absentFor, true
	ago := func(t time.Time) time.Time { return now.Add(-max(0, now.Sub(t))) }
	for _, k := range s.Kept {
		if k == nil || k.KeyID == "" || len(k.Plain) == 0 {
			return false
		}
		k.Named, k.Tried = ago(k.Named), ago(k.Tried)
		wait := min(max(0, k.Next.Sub(now)), k.lostRetry(now))
		if s.must(k, now) && !k.Ended {
			wait = 0 // this process has not seen what makes the plugin unhealthy
		}
		k.Next = now.Add(wait)
	}
	return len(s.Kept) <= mostFormer+1
}

// named records which key a plugin names; empty: none.
func (s *samples) named(keyID string, now time.Time) {
	s.Kept = slices.DeleteFunc(s.Kept, func(k *kept) bool { return k.KeyID != s.Current && now.Sub(k.Named) > keptFor })
	if keyID == "" {
		return
	}
	if keyID != s.Current {
		if k := s.of(s.Current); k != nil {
			// While a machine is suspended no reporter runs, and the monotonic clock stands still.
			suspended := now.Round(0).Sub(k.Named.Round(0)) - now.Sub(k.Named)
			k.Owed = !s.Absent && suspended <= absentFor
		}
		s.Current, s.turn = keyID, 0
		if k := s.of(keyID); k != nil { // a plugin that ends at what a former key encrypted, may decrypt it now
			k.Ended, k.Next = false, time.Time{}
		}
	}
	s.Absent = false
	if k := s.of(keyID); k != nil {
		k.Named, k.Owed = now, false
	}
}

func (s *samples) of(keyID string) *kept {
	if i := slices.IndexFunc(s.Kept, func(k *kept) bool { return k.KeyID == keyID }); i >= 0 {
		return s.Kept[i]
	}
	return nil
}

func (s *samples) former() []*kept {
	return slices.DeleteFunc(slices.Clone(s.Kept), func(k *kept) bool { return k.KeyID == s.Current })
}

// afterError makes the next round trip decrypt the first sample of the current key, unless the plugin may have ended
// at it: it may have returned with another key.
func (s *samples) afterError() {
	s.recheck = true
	if k := s.of(s.Current); k != nil && !k.Ended {
		k.Next = time.Time{}
	}
}

// untried are the samples of which no try since a request shows whether they decrypt, but those at which the plugin may
// have ended.
func (s *samples) untried(since time.Time) (all []*probe.Sample) {
	for _, k := range s.Kept {
		shown := !k.Tried.Before(since) && !k.undecided()
		if !shown && !(k.Ended && since.Before(k.Next)) {
			all = append(all, &k.Sample)
		}
	}
	return all
}

// next are the samples that are to be decrypted: by turns the first of the current key and that of the
// former one that was tried longest ago; before these one that was not decrypted since its key was
// replaced. One that failed waits, and if it is of the current key, is then tried beside the other.
func (s *samples) next(now time.Time) (all []*probe.Sample) {
	ready := func(k *kept) bool { return k != nil && (k.Failed == 0 || !now.Before(k.Next)) }
	var former *kept
	for _, k := range s.former() {
		sooner := former == nil || k.Owed && !former.Owed || k.Owed == former.Owed && k.Tried.Before(former.Tried)
		if ready(k) && sooner {
			former = k
		}
	}
	current, mine := s.of(s.Current), s.recheck || s.turn%2 == 0
	s.turn++
	pick := former
	if ready(current) && (former == nil || mine && !former.Owed) {
		pick = current
	}
	for _, k := range s.Kept {
		if k == pick || k == current && k.Failed > 0 && ready(k) {
			k.Tried = now
			all = append(all, &k.Sample)
		}
	}
	return all
}

// end records the outcome of a round trip.
func (s *samples) end(now time.Time, trip probe.Trip) {
	for _, o := range trip.Kept {
		s.recheck = s.recheck && o.Sample.KeyID != s.Current
		if k := s.of(o.Sample.KeyID); k != nil && k.At.Equal(o.Sample.At) {
			s.record(k, now, o)
		}
	}
	size := 0
	if trip.Sealed == nil || s.of(trip.Sealed.KeyID) != nil {
		return
	}
	for name, value := range trip.Sealed.Annotations {
		size += len(name) + len(value)
	}
	if size > mostKeptAnnotations {
		return
	}
	s.Kept = append(s.Kept, &kept{Sample: *trip.Sealed, Named: now, Tried: now})
	if former := s.former(); len(former) > mostFormer {
		oldest := slices.MinFunc(former, func(a, b *kept) int { return a.Named.Compare(b.Named) })
		s.Kept = slices.DeleteFunc(s.Kept, func(k *kept) bool { return k == oldest })
	}
}

func (s *samples) record(k *kept, now time.Time, o probe.Opened) {
	if k.Tried = now; o.Detail == "" {
		k.Owed, k.Failed, k.Ended, k.Reason, k.Detail, k.Next = false, 0, false, "", "", time.Time{}
		return
	}
	k.Ended, k.Reason, k.Detail = o.Ended, o.Reason, o.Detail
	wait := backoff(sampleRetry, k.Failed, mostSampleRetry)
	if k.transient() {
		wait = backoff(tripRetry, k.Failed, mostSampleRetry)
	}
	if k.Failed++; k.Failed > 1 && !k.transient() && !s.must(k, now) {
		wait = k.lostRetry(now)
	}
	k.Next = now.Add(wait)
}

// lostRetry is the wait for a key in lost, the longest there is: as long again as it has been a former one.
func (k *kept) lostRetry(now time.Time) time.Duration { return max(mostSampleRetry, now.Sub(k.Named)) }

// transient reports whether a failure shows nothing about the key: the KMS was not reached in time, or the error names
// no cause, and did not last yet. Most plugins return UNKNOWN for all that a KMS answers, also when it throttles.
func (k *kept) transient() bool {
	notReached := []contract.Reason{contract.Timeout, contract.Unavailable, contract.Throttled}
	unclear := k.Reason == contract.ReportedUnhealthy && k.Failed < transientTries
	return !k.Ended && (unclear || slices.Contains(notReached, k.Reason))
}

// undecided reports whether more tries must fail before the key counts as lost.
func (k *kept) undecided() bool { return k.transient() && k.Failed < transientTries }

// must reports whether a sample that failed makes the plugin unhealthy.
func (s *samples) must(k *kept, now time.Time) bool {
	return k.Failed > 0 && (k.KeyID == s.Current || k.Owed && now.Sub(k.Named) <= owedFor)
}

// retry reports whether a sample that makes the plugin unhealthy is to be tried again.
func (s *samples) retry(now time.Time) bool {
	return slices.ContainsFunc(s.Kept, func(k *kept) bool { return s.must(k, now) && !now.Before(k.Next) })
}

// verdict is that on a plugin that does not decrypt what it encrypted before; not Made: it does, as
// far as is known.
func (s *samples) verdict(now time.Time) probe.Trip {
	i := slices.IndexFunc(s.Kept, func(k *kept) bool { return s.must(k, now) })
	if i < 0 {
		return probe.Trip{}
	}
	k := s.Kept[i]
	under := "the same key_id"
	if k.KeyID != s.Current {
		under = fmt.Sprintf("the former key_id %q", contract.Cut(k.KeyID, 512))
	}
	reason, detail, what := k.Reason, k.Detail, "can no longer be decrypted"
	switch {
	case k.Ended:
		reason, what = contract.RoundTripMismatch, "was not decrypted"
		detail = "the connection broke at this call, so the plugin may have ended at it: " + detail
	case k.transient():
		what = "was not decrypted"
	case reason == contract.ReportedUnhealthy: // no other cause, since new data can be decrypted
		reason = contract.RoundTripMismatch
	}
	return probe.Trip{Made: true, Status: contract.Unhealthy, Reason: reason, Detail: contract.CleanDetail(fmt.Sprintf(
		"what was encrypted at %s under %s %s: %s; tried %d times, again at %s",
		k.At.UTC().Format(time.RFC3339), under, what, detail, k.Failed, k.Next.UTC().Format(time.RFC3339)))}
}

// lost are the former keys whose sample is not decrypted any more, without a verdict on the plugin.
func (s *samples) lost(now time.Time) (keyIDs []string) {
	for _, k := range s.former() {
		if k.Failed > 0 && !k.undecided() && !s.must(k, now) && now.Sub(k.Named) <= keptFor {
			keyIDs = append(keyIDs, k.KeyID)
		}
	}
	return keyIDs
}
