package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// removals are the writes that remove reports.
func (s *fixture) removals() []request {
	return slices.DeleteFunc(s.written(), func(w request) bool { return w.kind != types.JSONPatchType })
}

// wantsRemoved requires a number of removals since the start, and returns the last.
func (s *fixture) wantsRemoved(n int, when string) request {
	s.Helper()
	all := s.removals()
	if len(all) != n {
		s.Fatalf("%s: %d removals, want %d: %+v", when, len(all), n, all)
	}
	if n == 0 {
		return request{}
	}
	return all[n-1]
}

// ghost adds a report of a node that does not exist, and waits for its removal, which the
// watch does not show yet.
func (s *fixture) ghost() request {
	s.Helper()
	s.begin()
	s.report("z")
	s.show()
	s.settled()
	w := s.wantsRemoved(1, "a report of no Node")
	if !strings.Contains(w.body, `/message","value":`) || !strings.Contains(w.body, `"KMSHealthReporter_z"`) {
		s.Errorf("removed by %s", w.body)
	}
	return w
}

func TestARemovalIsNotRepeatedWhileTheWatchLagsBehind(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ghost()
		s.addPod("c") // causes a sync; the resource is unchanged
		s.Wake("api")
		s.settled()
		s.wantsRemoved(1, "while the watch does not show it")
		s.version -= 5 // a version of others' writes before the removal
		s.show()
		s.settled()
		s.wantsRemoved(1, "while the watch shows what others wrote before")
		s.version += 5
		delete(s.reports, "z")
		s.show()
		s.until(2 * time.Hour)
		s.wantsRemoved(1, "when it is gone")
	})
}

func TestAReportThatIsWrittenAgainIsKeptUntilItIsStale(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ghost()
		delete(s.reports, "z")
		s.show()
		var stale time.Duration
		for i := range 20 {
			s.until(time.Duration(i+1) * 10 * time.Second)
			stale = s.report("a", "b", "z")
			s.show()
		}
		s.until(stale - 1)
		s.wantsRemoved(1, "while its reporter writes, and until its last report is stale")
		s.until(stale + 1)
		s.wantsRemoved(2, "when its reporter has ended")
		delete(s.reports, "z")
		s.show()
		s.until(stale + time.Hour)
		s.wantsRemoved(2, "when it is gone")
		if n := strings.Count(strings.Join(s.events, " "), "ReportRemoved"); n != 2 {
			t.Errorf("%d events for it", n)
		}
	})
}

// Its reporter writes between the read and the removal.
func TestARemovalOfAChangedReportIsNotAFailure(t *testing.T) {
	for name, refusal := range map[string]error{
		"race": apierrors.NewConflict(cluster.GroupResource(), "cluster", nil),
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(s *fixture) {
				s.begin()
				s.failing(refusal)
				s.report("z")
				s.show()
				s.settled()
				tried := len(s.removals())
				s.until(30 * time.Second)
				s.wantsRemoved(tried, "until the watch delivers the change")
				if got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("api")); got != 0 || slices.Contains(s.events, "ReportRemoved") {
					t.Errorf("%v failures are counted, events %q", got, s.events)
				}
				s.failing(nil)
				s.report("z")
				s.show()
				s.settled()
				s.wantsRemoved(tried+1, "then")
			})
		})
	}
}

// invalid is the response to a JSON patch whose test fails, and to what admission denies.
var invalid = apierrors.NewInvalid(cluster.GroupVersion().WithKind("KubeAPIServer").GroupKind(), "cluster", nil)

// Admission denies the removal each time.
func TestRejectedRemovalIsCountedAndRepeated(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.failing(invalid)
		s.report("z")
		s.show()
		s.until(30 * time.Second)
		tried := len(s.removals())
		if got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("api")); tried < 2 || got != float64(tried) || slices.Contains(s.events, "ReportRemoved") {
			t.Errorf("%d removals, %v failures are counted, events %q", tried, got, s.events)
		}
	})
}

// Other writers add and move their conditions in the same list, so that the place of the
// report is another when the patch arrives.
func TestARemovalThatOthersMoveIsMadeAgainAtOnce(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		moves := 3
		s.mu.Lock()
		s.removes = func() error {
			if moves == 0 {
				return nil
			}
			moves--
			s.shown = append([]any{map[string]any{"type": fmt.Sprintf("Other%dDegraded", moves), "status": "False"}}, s.shown...)
			s.change() // the watch does not deliver it before the next patch
			return invalid
		}
		s.mu.Unlock()
		s.report("z")
		s.show()
		s.settled()
		w := s.wantsRemoved(1, "after three that others moved")
		if !strings.Contains(w.body, `"/status/conditions/8/type","value":"KMSHealthReporter_z"`) {
			t.Errorf("removed by %s", w.body)
		}
		if got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("api")); got != 0 {
			t.Errorf("%v failures are counted", got)
		}
	})
}

func TestARemovalIsRememberedForAnHour(t *testing.T) {
	withFixture(t, func(s *fixture) {
		removed := s.ghost()
		delete(s.reports, "z")
		s.show()
		s.until(removed.at + remembered + time.Second)
		s.report("z")
		s.show()
		s.settled()
		s.wantsRemoved(2, "later it is another's")
	})
}

func TestARemovalIsDroppedWithItsTarget(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ghost()
		delete(s.reports, "z")
		s.show()
		s.remove()
		s.settled()
		s.report("z")
		s.show()
		s.set(withKeys("2"))
		s.settled()
		s.wantsRemoved(2, "it is a target anew")
	})
}

// The report of a node that no longer has an API server is removed after a wait.
func TestAReportOfANodeWithoutPodIsRemovedAfterAQuietPeriod(t *testing.T) {
	withFixture(t, func(s *fixture) {
		stale := s.begin()
		if err := s.client.Tracker().Delete(source.Pods, "ns", "api-b"); err != nil {
			t.Fatal(err)
		}
		due := stale + rollup.QuietPeriod
		s.until(due - 1)
		s.wantsRemoved(0, "before the quiet period is over")
		s.until(due)
		if w := s.wantsRemoved(1, "when it is over"); !strings.Contains(w.body, `"KMSHealthReporter_b"`) {
			t.Errorf("removed by %s", w.body)
		}
	})
}

// Reports of an Unmanaged target are not removed; its state is still reported.
func TestUnmanagedTargetKeepsItsReports(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.addAgent("a") // a node without a reporter is not expected to report
		stale := s.begin(withKeys("2").but(func(t *apiserver.Published) { t.Unmanaged = true }))
		s.report("z")
		s.show()
		s.until(stale + 1)
		s.wantsRemoved(0, "unmanaged")
		if w := s.wantWrites(2, "all have stopped reporting"); degraded(w.apply) != "Unknown ReporterStale" || !strings.Contains(w.body, `"message":"node a: `) {
			t.Errorf("written: %s", w.body)
		}
		s.set(withKeys("2").but(func(t *apiserver.Published) { t.Unmanaged, t.Off, t.Clean = true, true, true }))
		s.settled()
		s.wantWrites(2, "off")
		if v, judged := s.Verdict("api"); !judged || v.Done || v.Result != nil {
			t.Errorf("the verdict is %+v", v)
		}
	})
}

func TestATargetThatIsOffIsDoneWhenNothingIsLeft(t *testing.T) {
	withFixture(t, func(s *fixture) {
		done := func(want bool, when string) {
			t.Helper()
			if v, judged := s.Verdict("api"); !judged || v.Done != want || v.Result != nil {
				t.Errorf("%s: the verdict is %+v", when, v)
			}
		}
		s.begin()
		off := withKeys("2").but(func(t *apiserver.Published) { t.Off = true })
		s.set(off)
		s.settled()
		if w := s.wantWrites(2, "the roll-up is removed first"); w.apply != nil || w.kind != types.ApplyPatchType {
			t.Errorf("written: %s", w.body)
		}
		s.wantsRemoved(0, "reporters may still write")
		s.showWritten()
		s.settled()
		done(false, "reporters may still write")

		off.Clean = true
		s.set(off)
		s.settled()
		s.wantsRemoved(1, "none writes")
		for range 3 {
			s.Wake("api")
			s.settled()
		}
		s.wantsRemoved(1, "once")
		done(false, "reports are still shown")

		// One of them was written again, which does not delay the removal.
		delete(s.reports, "b")
		for range 2 {
			s.until(time.Since(s.start) + time.Second)
			s.report("a")
			s.show()
			s.settled()
		}
		s.wantsRemoved(1, "it was written again")
		done(true, "a report was written again")
		s.reports = nil
		s.show()
		s.settled()
		done(true, "all are gone")
		if len(s.metrics.results) > 0 {
			t.Errorf("metrics of it: %v", s.metrics.results)
		}
		s.wantWrites(3, "and nothing more")
	})
}

func TestSupersededTargetWritesNothing(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.report("a", "b", "z")
		s.show()
		s.set(withKeys("2").but(func(t *apiserver.Published) { t.Superseded = true }))
		s.until(time.Hour)
		s.wantWrites(0, "another has the resource")
		if v, judged := s.Verdict("api"); !judged || !v.Done {
			t.Errorf("the verdict is %+v", v)
		}
	})
}

// KMS is turned off, on and off again: each time the reports go, those of new reporters too.
func TestReportsOfNewReportersAreRemovedAsThoseOfEarlierOnes(t *testing.T) {
	withFixture(t, func(s *fixture) {
		off := func(t *apiserver.Published) { t.Off, t.Clean = true, true }
		s.report("a", "b")
		s.show()
		s.set(withKeys("2"))
		s.settled()
		for round := range 3 {
			s.set(withKeys("2").but(off))
			s.settled()
			s.wantsRemoved(round+1, "off")
			clear(s.reports)
			s.version += 20
			s.show()
			s.settled()
			if !s.IsDone("api") {
				t.Fatal("not done without a report")
			}
			s.set(withKeys("2"))
			s.settled()
			s.report("a", "b")
			s.show()
			s.settled()
		}
	})
}
