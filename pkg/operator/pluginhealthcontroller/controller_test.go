package pluginhealthcontroller

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// begin shows the roll-up of an earlier process, and makes both nodes report twice, which causes no write. It returns
// the time since the start at which the reports become stale.
func (s *fixture) begin(targets ...*target) (stale time.Duration) {
	s.Helper()
	s.report("a", "b")
	s.shown = s.earlier()
	s.show()
	if len(targets) == 0 {
		targets = []*target{withKeys("2")}
	}
	s.set(targets[0])
	s.until(2 * time.Second)
	s.showReports("a", "b")
	s.settled()
	s.wantWrites(0, "first")
	return 2*time.Second + syncqueue.CoalescePeriod + contract.StaleIntervals*interval
}

// earlier returns the healthy conditions of an earlier process.
func (s *fixture) earlier() (conditions []any) {
	at := s.start.UTC().Format(time.RFC3339)
	for kind, of := range map[string][2]string{
		contract.PluginsDegraded: {operatorstatus.False, "every plugin is healthy on 2 nodes"},
		contract.HealthReporting: {operatorstatus.True, "2 nodes report"},
		contract.WriteKeyAgreed:  {operatorstatus.True, `{"keyID":"2","kekID":"k-7","since":"2000-01-01T00:00:00Z"}`},
	} {
		conditions = append(conditions, map[string]any{"type": kind, "status": of[0], "reason": contract.AsExpected, "message": of[1],
			"lastTransitionTime": at})
	}
	return conditions
}

// Each process ends before a report could become stale. The next process continues to count the silence that it kept.
func TestRestartsOfTheOperatorHideNoSilence(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		for process := range 3 {
			s.wantWrites(0, "before the time is over")
			s.until(time.Duration(process+1) * 37 * time.Second)
			silent := s.Verdict("api").Silent
			if len(silent) != 2 {
				t.Fatalf("at %s: silent are %v", time.Since(s.start), silent)
			}
			s.Remove("api")
			s.set(withKeys("2").but(func(p *delivery.Snapshot) { p.State.Silent = silent }))
		}
		s.wantVerdict(1, "Unknown ReporterStale", "in the third process")
		s.showWritten()
		s.showReports("a", "b")
		s.settled()
		if silent := s.Verdict("api").Silent; len(silent) > 0 {
			t.Errorf("when they report again, silent are %v", silent)
		}
	})
}

// Reporters write, but the watch shows nothing. When reports seem stale, the operator reads the resource from etcd, and
// sees the new ones.
func TestWatchThatShowsNothingIsNoSilence(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.blind.Store(true)
		for range 60 {
			s.pass(interval)
			s.showReports("a", "b")
		}
		s.wantWrites(0, "while they report")
		s.pass(contract.StaleIntervals*interval + contract.StaleIntervals*interval)
		s.wantVerdict(1, "Unknown ReporterStale", "when nobody does")
	})
}

// The delivery finds such a provider in an encryption config.
func TestAProviderThatIsNotProbedIsReported(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.sets(withKeys("2").but(func(p *delivery.Snapshot) { p.State.NotProbed = "provider old is not probed" }))
		w := s.wantVerdict(1, "Unknown ProviderNotProbed", "beside healthy plugins")
		if !strings.Contains(w.body, "provider old") {
			s.Errorf("written: %s", w.body)
		}
	})
}

// While the resource cannot be read from etcd, no reporter counts as silent. That is first seen when reports are due:
// etcd hangs, and the watch stays open.
func TestReportsAreNotSilentWhileTheResourceCannotBeRead(t *testing.T) {
	withFixture(t, func(s *fixture) {
		stale := s.begin()
		s.until(stale - 1)
		s.listing(cluster, apierrors.NewTimeoutError("etcd", 0)) // the watch goes on
		s.until(stale + time.Hour)
		s.wantWrites(0, "without an answer")
		s.listing(cluster, nil)
		s.wantExcused(s.now())
	})
}

// readAnew is the time from the deadline of stale reports to the verdict. The resource is read again in between.
const readAnew = syncqueue.CoalescePeriod

func TestStaleReportsAreReportedAtTheirDeadlineWithoutAnotherWrite(t *testing.T) {
	withFixture(t, func(s *fixture) {
		stale := s.begin()
		s.until(stale - 1)
		s.wantWrites(0, "at the last instant at which all is fresh")
		s.until(stale + readAnew)
		w := s.wantVerdict(1, "Unknown ReporterStale", "when the resource was read anew")
		if v := s.Verdict("api"); w.at != stale+readAnew || !v.Judged || v.Degraded.Status != operatorstatus.Unknown {
			t.Errorf("at %s: the verdict is %+v", w.at, v)
		}
		s.showWritten()
		s.until(stale + time.Hour)
		s.wantWrites(1, "and nothing more")
		if want := []string{"ReporterStale", "ReporterStale", "ReporterStale"}; !slices.Equal(s.events, want) {
			t.Errorf("events %q, want %q", s.events, want)
		}
	})
}

// Reports from before the start are no evidence. The verdict is healthy once they have changed. The key is agreed on
// once the API servers write with it.
func TestFirstRollUp(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.startUp()
		s.settled()
		if w := s.wantVerdict(1, "False Progressing", "first"); !strings.Contains(w.body, contract.Settling) {
			t.Errorf("written: %s", w.body)
		}
		s.showWritten()
		for s.until(10 * time.Second); s.now() < 170*time.Second; s.pass(10 * time.Second) {
			s.showReports("a", "b")
			s.settled()
			s.showWritten()
		}
		if w := s.wantVerdict(2, "False AsExpected", "both have reported again"); !strings.Contains(w.body, contract.Settling) {
			t.Errorf("written: %s", w.body)
		}
		s.showWritten()
		s.until(3*time.Minute + 11*time.Second) // both had reported after 10 s
		if w := s.wantWrites(3, "the key is settled"); !strings.Contains(w.body, `\"kekID\":\"k-7\",\"since\":`) {
			t.Errorf("written: %s", w.body)
		}
	})
}

// Reporters write all the time. A report must not cause another try.
func TestAWriteThatFailsIsTriedAgainLaterEachTime(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.failing(apierrors.NewInternalError(errors.New("away")))
		s.startUp()
		for s.now() < 30*time.Second {
			s.pass(500 * time.Millisecond)
			s.showReports("a", "b")
		}
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
		if judged := s.Verdict("api").Judged; !judged || len(s.events) > 0 {
			t.Errorf("judged: %v, events of what was not written: %q", judged, s.events)
		}

		s.failing(nil)
		s.until(tried[len(tried)-1].at + syncqueue.LastRetry)
		s.wantWrites(len(tried)+1, "when it succeeds")
		s.showWritten()

		// After a recovery the backoff starts again.
		s.failing(apierrors.NewInternalError(errors.New("away again")))
		s.reports["a"][0].Status = contract.Error
		s.show()
		s.pass(syncqueue.CoalescePeriod + 250*time.Millisecond)
		again := s.written()[len(tried)+1:]
		if len(again) != 2 || again[1].at-again[0].at != 250*time.Millisecond {
			t.Errorf("it begins with %+v", again)
		}
	})
}

// Reporters write after the controller's write, before the watch has shown that.
func TestWriteCountsUntilTheWatchShowsIt(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ahead = 3
		s.startUp()
		s.settled()
		s.wantWrites(1, "first")
		for range s.ahead - 1 {
			s.showReports("a")
			s.settled()
		}
		s.wantWrites(1, "while the watch shows what others wrote before")
		s.shows()
		s.wantWrites(2, "when the watch shows it, and another client has removed the conditions")
	})
}

// A burst of reports causes one sync.
func TestReportsThatComeOneByOneAreRolledUpTogether(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.until(10 * time.Second)
		for _, node := range []string{"a", "b"} {
			s.reports[node][0].Status = contract.Error
			s.show()
			s.pass(syncqueue.CoalescePeriod / 4)
		}
		s.settled()
		if w := s.wantWrites(1, "both unhealthy"); w.at != 10*time.Second+syncqueue.CoalescePeriod {
			t.Errorf("written at %s", w.at)
		}
	})
}

func TestStateOfARemovedTargetIsDropped(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.failing(apierrors.NewInternalError(errors.New("away")))
		s.startUp()
		s.until(10 * time.Second)
		lists := func() int {
			other := func(a clienttesting.Action) bool { return !a.Matches("list", "kubeapiservers") }
			return len(slices.DeleteFunc(s.client.Actions(), other))
		}
		tried, before := len(s.written()), s.changes
		if lists() != 1 {
			t.Fatalf("listed %d times", lists())
		}
		s.remove()
		s.settled()
		if v := s.Verdict("api"); v.Judged || s.changes != before+1 || len(s.targets)+len(s.metrics.results) > 0 {
			t.Errorf("%d changes reported, left: %+v, %v %v", s.changes-before, v, s.targets, s.metrics.results)
		}

		// It is added again, without any earlier state.
		s.sets(withKeys("2"))
		again := s.written()[tried:]
		if len(again) != 2 || again[1].at-again[0].at != syncqueue.FirstRetry {
			t.Errorf("it begins with %+v", again)
		}
		if lists() != 2 {
			t.Errorf("its sources were not stopped: listed %d times", lists())
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
		s.sets(unknown)
		if v := s.Verdict("api"); !reflect.DeepEqual(v, delivery.Verdict{Judged: true}) {
			t.Errorf("the resource is not there, and the verdict is %+v", v)
		}
		s.listing(informers.Pods, errors.New("forbidden"))
		s.remove()
		s.settled()

		s.show()
		s.sets(unknown)
		quiet("neither plugins nor reports are known")
		s.report("a", "b")
		s.shown = []any{map[string]any{"type": contract.PluginsDegraded, "status": operatorstatus.True}}
		s.shows()
		quiet("pods cannot be listed")
		if v := s.Verdict("api"); v.Degraded.Status != operatorstatus.True { // the ClusterOperator uses it
			t.Errorf("an earlier process had found an unhealthy plugin, and the verdict is %+v", v)
		}
		s.listing(informers.Pods, nil)
		s.pass(2 * time.Second)
		s.wantVerdict(1, "False AsExpected", "pods are known")
	})
}

// API servers may run outside of pods. Then every node that the agents' selector matches is expected to report, with or
// without an agent.
func TestNodesOfAgentsCountWhereNoAPIServerHasAPod(t *testing.T) {
	withFixture(t, func(s *fixture) {
		for _, name := range []string{"a", "b"} {
			s.deletePod("ns", "api-"+name)
			s.addAgent(name)
		}
		s.set(withKeys("2").but(func(t *delivery.Snapshot) {
			t.State.Mode, t.NodeSelector = v1alpha1.ModeDaemonSet, map[string]string{"x": "y"}
		}))
		check := func(until time.Duration, want string, nodes ...string) {
			t.Helper()
			for s.now() < until {
				clear(s.reports)
				s.report(nodes...)
				if want == "True PluginUnhealthy" {
					s.reports["b"][0].Status = contract.Unhealthy
				}
				s.shows()
				if len(s.written()) > 0 {
					s.showWritten()
				}
				s.pass(10 * time.Second)
			}
			if got := degraded(s.shown); got != want {
				t.Errorf("after %s: %s, want %s", until, got, want)
			}
		}
		check(30*time.Second, "False AsExpected", "a", "b")
		if c := s.Verdict("api").Reporting; c.Status != operatorstatus.True {
			t.Errorf("healthy: %+v", c)
		}
		check(time.Minute, "True PluginUnhealthy", "a", "b")
		s.deletePod("kms-health", "kms-health-api-b")
		check(10*time.Minute, "Unknown ReportsMissing", "a")
		s.deletePod("kms-health", "kms-health-api-a")
		check(20*time.Minute, "Unknown ReportsMissing")
		w := s.wantLast("Unknown ReportsMissing", "without any agent")
		if strings.Contains(w.body, `"type":"KMSWriteKeyAgreed","status":"True"`) {
			t.Errorf("written: %s", w.body)
		}
	})
}

// Another podSelector, for example, needs new informers.
func TestVerdictStaysWhileNewSourcesAreNotRead(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		before := s.Verdict("api").Degraded
		s.listing(cluster, errAway)
		s.published.Stop()
		s.published = nil
		s.sets(withKeys("2"))
		if v := s.Verdict("api"); v.Degraded != before || !v.Judged || before.Status != operatorstatus.False {
			t.Errorf("the verdict was %+v, and is %+v", before, v)
		}
		s.wantWrites(0, "while the resource is not read")
	})
}

// A target that is enabled again has as much time for its first reports as a new one.
func TestReportsAreNotMissedWhenATargetIsOnAgain(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		for range 40 {
			s.pass(10 * time.Second)
			s.showReports("a", "b")
		}
		s.sets(withKeys("2").but(func(t *delivery.Snapshot) { t.Off, t.Clean = true, true }))
		clear(s.reports)
		s.shown = nil
		s.shows()
		s.sets(withKeys("2"))
		if c := s.Verdict("api").Degraded; c.Status != operatorstatus.False || c.Reason != contract.Progressing {
			t.Errorf("%+v", c)
		}
	})
}
