package pluginhealthcontroller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// begin makes both nodes report, and waits until the roll-up is written and shown: one write.
func (s *fixture) begin(targets ...*target) (stale time.Duration) {
	s.Helper()
	stale = s.report("a", "b")
	s.show()
	if len(targets) == 0 {
		targets = []*target{withKeys("2")}
	}
	s.set(targets[0])
	s.settled()
	if w := s.wantWrites(1, "first"); degraded(w.apply) != "False AsExpected" {
		s.Fatalf("written: %s", w.body)
	}
	s.showWritten()
	return stale
}

func TestStaleReportsAreReportedAtTheirDeadlineWithoutAnotherWrite(t *testing.T) {
	withFixture(t, func(s *fixture) {
		stale := s.begin()
		s.until(stale)
		s.wantWrites(1, "at the last instant at which all is fresh")
		s.until(stale + 1)
		w := s.wantWrites(2, "an instant later")
		if w.at != stale+1 || degraded(w.apply) != "Unknown ReporterStale" {
			t.Errorf("at %s: %s", w.at, w.body)
		}
		if v := s.Verdict("api"); !v.Judged ||
			v.Degraded.Status != operatorstatus.Unknown {
			t.Errorf("the verdict is %+v", v)
		}
		s.showWritten()
		s.until(stale + time.Hour)
		s.wantWrites(2, "and nothing more")
		if want := []string{"AsExpected", "AsExpected", "AsExpected", "ReporterStale", "ReporterStale",
			"ReporterStale"}; !slices.Equal(s.events, want) {
			t.Errorf("events %q, want %q", s.events, want)
		}
	})
}

func TestAWriteThatFailsIsTriedAgainLaterEachTime(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.failing(apierrors.NewInternalError(errors.New("away")))
		s.report("a", "b")
		s.show()
		s.set(withKeys("2"))
		s.until(30 * time.Second)
		tried := s.written()
		for i, want := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
			4 * time.Second, 8 * time.Second, syncqueue.LastRetry} {
			if i+1 >= len(tried) || tried[i+1].at-tried[i].at != want {
				t.Fatalf("try %d is not %s after the one before: %+v", i+2, want, tried)
			}
		}
		if got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("api")); got != float64(len(tried)) {
			t.Errorf("%v failures are counted, of %d", got, len(tried))
		}
		if len(s.events) > 0 {
			t.Errorf("events of what was not written: %q", s.events)
		}
		if !s.Verdict("api").Judged {
			t.Error("no verdict, though only writing fails")
		}

		s.failing(nil)
		s.until(tried[len(tried)-1].at + syncqueue.LastRetry)
		s.wantWrites(len(tried)+1, "when it succeeds")
		s.showWritten()

		// After a recovery the backoff starts again.
		s.failing(apierrors.NewInternalError(errors.New("away again")))
		stale := s.report("a", "b")
		s.show()
		s.until(stale + 1 + 250*time.Millisecond)
		again := s.written()[len(tried)+1:]
		if len(again) != 2 || again[1].at-again[0].at != 250*time.Millisecond {
			t.Errorf("it begins with %+v", again)
		}
	})
}

// Reporters write between a write and what the watch shows of it.
func TestWriteCountsUntilTheWatchShowsIt(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ahead = 3
		s.report("a", "b")
		s.show()
		s.set(withKeys("2"))
		s.settled()
		s.wantWrites(1, "first")
		for range s.ahead - 1 {
			s.report("a")
			s.show()
			s.settled()
		}
		s.wantWrites(1, "while the watch shows what others wrote before")
		s.show()
		s.settled()
		s.wantWrites(2, "when the watch shows it, and another client has removed the conditions")
	})
}

// A burst is one sync.
func TestReportsThatComeOneByOneAreRolledUpTogether(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.until(10 * time.Second)
		for _, node := range []string{"a", "b"} {
			s.reports[node][0].Status = contract.Error
			s.show()
			s.until(time.Since(s.start) + syncqueue.CoalescePeriod/4)
		}
		s.settled()
		if w := s.wantWrites(2, "both unhealthy"); w.at != 10*time.Second+syncqueue.CoalescePeriod {
			t.Errorf("written at %s", w.at)
		}
	})
}

func TestStateOfARemovedTargetIsDropped(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.failing(apierrors.NewInternalError(errors.New("away")))
		s.report("a", "b")
		s.show()
		s.set(withKeys("2"))
		s.until(10 * time.Second)
		lists := func() int {
			n := 0
			for _, a := range s.client.Actions() {
				if a.Matches("list", "kubeapiservers") {
					n++
				}
			}
			return n
		}
		tried, before := len(s.written()), s.changes
		if lists() != 1 {
			t.Fatalf("listed %d times", lists())
		}
		s.remove()
		s.settled()
		if v := s.Verdict("api"); v.Judged {
			t.Errorf("its verdict is %+v", v)
		}
		if s.changes != before+1 {
			t.Errorf("%d changes reported", s.changes-before)
		}
		if len(s.targets)+len(s.metrics.results) > 0 {
			t.Errorf("left: %v %v", s.targets, s.metrics.results)
		}

		// It is added again, without any earlier state.
		s.set(withKeys("2"))
		s.settled()
		again := s.written()[tried:]
		if len(again) != 2 || again[1].at-again[0].at != syncqueue.FirstRetry {
			t.Errorf("it begins with %+v", again)
		}
		if lists() != 2 {
			t.Errorf("its sources were not stopped: listed %d times", lists())
		}
	})
}

// Reporters write all the time: each report would be one more try.
func TestReportDoesNotShortenTheBackoff(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.failing(apierrors.NewInternalError(errors.New("away")))
		s.report("a", "b")
		s.show()
		s.set(withKeys("2"))
		s.until(20 * time.Second)
		tried := len(s.written())
		for range 40 {
			s.until(time.Since(s.start) + 500*time.Millisecond)
			s.report("a", "b")
			s.show()
		}
		if got := len(s.written()) - tried; got > 3 {
			t.Errorf("got %d tries in 20 s, want one each %s", got, syncqueue.LastRetry)
		}
	})
}

func TestNothingIsWrittenWhileTooLittleIsKnown(t *testing.T) {
	withFixture(t, func(s *fixture) {
		quiet := func(when string) {
			t.Helper()
			s.wantWrites(0, when)
			if v := s.Verdict("api"); v.Judged {
				t.Errorf("%s: the verdict is %+v", when, v)
			}
		}
		s.settled()
		quiet("before any target was set")
		unknown := withKeys().but(func(t *delivery.Snapshot) { t.SetsKnown = false })
		s.set(unknown)
		s.settled()
		if v := s.Verdict("api"); v != (delivery.Verdict{Judged: true}) {
			t.Errorf("the resource is not there, and the verdict is %+v", v)
		}
		s.listing(informers.Pods, errors.New("forbidden"))
		s.remove()
		s.settled()

		s.show()
		s.set(unknown)
		s.settled()
		quiet("neither plugins nor reports are known")
		s.report("a", "b")
		s.shown = []any{map[string]any{"type": contract.PluginsDegraded, "status": operatorstatus.True}}
		s.show()
		s.settled()
		quiet("pods cannot be listed")
		if v := s.Verdict("api"); v.Degraded.Status != operatorstatus.True { // for the ClusterOperator
			t.Errorf("an earlier process had found an unhealthy plugin, and the verdict is %+v", v)
		}
		s.listing(informers.Pods, nil)
		s.until(time.Since(s.start) + 2*time.Second)
		if w := s.wantWrites(1, "pods are known"); degraded(w.apply) != "False AsExpected" {
			t.Errorf("written: %s", w.body)
		}
	})
}

// The target's selector matches no pod, or its API servers run outside of pods.
func TestAgentsCountWhereNoAPIServerHasAPod(t *testing.T) {
	withFixture(t, func(s *fixture) {
		unhealthy := func() {
			s.report("a", "b")
			s.reports["b"][0].Status, s.reports["b"][0].Reason = contract.Unhealthy, contract.ReportedUnhealthy
			s.show()
		}
		for _, name := range []string{"a", "b"} {
			if err := s.client.Tracker().Delete(informers.Pods, "ns", "api-"+name); err != nil {
				t.Fatal(err)
			}
			s.addAgent(name)
		}
		s.set(withKeys("2"))
		unhealthy()
		s.settled()
		w := s.wantWrites(1, "without a pod")
		if degraded(w.apply) != "True PluginUnhealthy" || !strings.Contains(w.body, "node b: unhealthy") ||
			!strings.Contains(w.body, `"reason":"NoPods"`) ||
			strings.Contains(w.body, `"status":"True","type":"KMSWriteKeyAgreed"`) {
			t.Fatalf("written: %s", w.body)
		}
		s.showWritten()

		s.addPod("a")
		unhealthy()
		s.settled()
		if w := s.wantWrites(2, "with a pod"); degraded(w.apply) != "False AsExpected" {
			t.Errorf("written: %s", w.body)
		}
	})
}

// What was on, off, and is on again has the time of a new one for its first reports.
func TestReportsAreNotMissedWhenATargetIsOnAgain(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		for range 40 {
			s.until(time.Since(s.start) + 10*time.Second)
			s.report("a", "b")
			s.show()
		}
		s.set(withKeys("2").but(func(t *delivery.Snapshot) { t.Off, t.Clean = true, true }))
		s.settled()
		clear(s.reports)
		s.shown = nil
		s.show()
		s.settled()
		s.set(withKeys("2"))
		s.settled()
		if c := s.Verdict("api").Degraded; c.Status != operatorstatus.False || c.Reason != contract.Progressing {
			t.Errorf("%+v", c)
		}
	})
}
