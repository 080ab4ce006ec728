package reporter

import (
	"fmt"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	mostFormer          = contract.MaxLost // how many former keys have a kept sample
	mostKeptAnnotations = 4 << 10          // of a kept sample, in bytes
	// A sample that was not decrypted is tried again after sampleRetry, doubled each time up to mostSampleRetry: the
	// plugin may end at it. After two refusals, a sample that need not decrypt waits for lostRetry: a plugin may count
	// refusals against its health, and kube-apiserver is then not ready (aws-encryption-provider: for 30 s).
	sampleRetry     = time.Minute
	mostSampleRetry = time.Hour
	transientTries  = 3 // after so many failures in a row that show nothing about the key, it counts as lost
	// owedFor: a sample must decrypt until so long after its key was last named. Later, all may be encrypted again.
	owedFor = 24 * time.Hour
	keptFor = 7 * 24 * time.Hour // so long after its key was last named a sample is kept
	// absentFor bounds a time without a reporter. After a longer one, a migration may have followed a change of the key.
	absentFor = time.Hour
)

// samples are the kept samples of one plugin: the first one of each key.
type samples struct {
	Current string  `json:"current"` // the key ID that Status named last
	Kept    []*kept `json:"kept"`    // at most one of the current key and mostFormer others

	// Absent: no reporter ran for more than absentFor, so the next change of the key is no fault.
	Absent   bool   `json:"absent,omitempty"`
	Answered string `json:"answered,omitempty"` // the last fulfilled request; after a restart the file may still have it

	turn    int  // counts round trips; the current key's turn is each second one
	recheck bool // the plugin was in error, and may return with another key: the first sample of its key is next
}

// kept is a sample, and the results of decrypting it.
type kept struct {
	probe.Sample
	Named  time.Time       `json:"named"`            // when its key was last named
	Owed   bool            `json:"owed,omitempty"`   // the key was replaced, and the sample not decrypted since
	Tried  time.Time       `json:"tried"`            // when it was last tried
	Failed int             `json:"failed,omitempty"` // tries in a row
	Ended  bool            `json:"ended,omitempty"`  // the plugin may have ended at the last one
	Next   time.Time       `json:"next"`             // when it is tried again, after a failure
	Reason contract.Reason `json:"reason,omitempty"` // of the last failure
	Detail string          `json:"detail,omitempty"`
}

// loaded reports whether samples that were read from a file are valid. It converts their times to the monotonic clock
// of this process, since the wall clock may be set.
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
			wait = 0 // only an earlier process has seen the failure that makes the plugin unhealthy
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
		if k := s.of(keyID); k != nil { // a plugin that ended at this sample may decrypt it now that the key is back
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

// untried returns the samples without a clear result since the round trips for a request began. It leaves out those at
// which the plugin may have ended, unless their next try was due then.
func (s *samples) untried(since time.Time) (all []*probe.Sample) {
	for _, k := range s.Kept {
		shown := !k.Tried.Before(since) && !k.undecided()
		if !shown && !(k.Ended && since.Before(k.Next)) {
			all = append(all, &k.Sample)
		}
	}
	return all
}

// next returns the samples to decrypt: in turns that of the current key, and that of the former key that was
// tried longest ago. Owed ones come before others. A sample that failed waits for its next try. If it is of the
// current key, it is then tried in addition to the other, and after an error at once, unless the plugin ended at it.
func (s *samples) next(now time.Time) (all []*probe.Sample) {
	ready := func(k *kept) bool {
		return k != nil && (k.Failed == 0 || !now.Before(k.Next) || s.recheck && k.KeyID == s.Current && !k.Ended)
	}
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

// lostRetry is the longest wait, that for a lost key: as long again as it has been a former one.
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

func (s *samples) retry(now time.Time) bool {
	return slices.ContainsFunc(s.Kept, func(k *kept) bool { return s.must(k, now) && !now.Before(k.Next) })
}

// verdict is unhealthy if the plugin does not decrypt a sample that it must: see must. Otherwise Made is false.
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
	return fault(contract.Unhealthy, reason, "what was encrypted at %s under %s %s: %s; tried %d times, again at %s",
		k.At.UTC().Format(time.RFC3339), under, what, detail, k.Failed, k.Next.UTC().Format(time.RFC3339))
}

// lost returns the former keys whose samples no longer decrypt, unless that makes the plugin unhealthy.
func (s *samples) lost(now time.Time) (keyIDs []string) {
	for _, k := range s.former() {
		if k.Failed > 0 && !k.undecided() && !s.must(k, now) && now.Sub(k.Named) <= keptFor {
			keyIDs = append(keyIDs, k.KeyID)
		}
	}
	return keyIDs
}
