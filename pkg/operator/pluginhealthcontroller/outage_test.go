package pluginhealthcontroller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Reports do not age while the operator cannot see them, so reporters have time to recover after an outage of any
// length. A starting API server may deny requests that it allows a moment later.
func TestReportsAreExcusedAfterAnOutage(t *testing.T) {
	denial := apierrors.NewForbidden(cluster.GroupResource(), "", nil)
	outages := map[string]func(s *fixture){
		"a denial": func(s *fixture) {
			s.refuse(cluster, denial)
			s.pass(63 * time.Second)
		},
		"a minute, and a denial": func(s *fixture) {
			s.away()
			s.pass(63 * time.Second)
			s.listing(cluster, denial)
			s.pass(20 * time.Second)
		},
	}
	for _, lasts := range []time.Duration{5 * time.Second, 25 * time.Second, time.Minute, time.Hour} {
		outages[lasts.String()] = func(s *fixture) {
			s.away()
			s.pass(lasts)
		}
	}
	for name, outage := range outages {
		for _, reported := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, and they report again: %v", name, reported), func(t *testing.T) {
				withFixture(t, func(s *fixture) {
					s.until(s.begin() - 3*time.Second)
					outage(s)
					s.wantWrites(0, "while the API server is away")
					s.listing(cluster, nil)
					if !reported {
						s.wantExcused(s.now())
						return
					}
					s.pass(5 * time.Second)
					s.showReports("a", "b")
					s.pass(25 * time.Second)
					s.wantWrites(0, "when they report again")
				})
			})
		}
	}
}

// An outage may break neither the watch of the operator resource nor a write.
func TestMissingReportsAreExcusedAfterAnyRequestWithoutAResponse(t *testing.T) {
	withFixture(t, func(s *fixture) {
		back := s.begin() - 3*time.Second
		s.until(back)
		s.unanswered()
		s.wantExcused(back)
	})
	withFixture(t, func(s *fixture) {
		s.until(s.begin() + 5*time.Second)
		s.wantVerdict(1, "Unknown ReporterStale", "when they are silent")
		s.showWritten()
		s.pass(time.Minute)
		s.unanswered()
		s.Queue.Enqueue("api")
		s.pass(10 * time.Second)
		s.wantWrites(1, "after an outage that began later")
	})
}

// unanswered makes now the time of a request without a response.
func (s *fixture) unanswered() { s.locked(func() { s.silence = time.Now() }) }

// afterOutage is for how long reports count at least after an outage.
const afterOutage = time.Minute

// wantExcused requires reports to count for the period afterOutage once the API server is back.
func (s *fixture) wantExcused(back time.Duration) {
	s.Helper()
	s.until(back + afterOutage)
	for _, w := range s.written() { // only KMSWriteKeyAgreed may be written
		if degraded(w.apply) != "False AsExpected" {
			s.Errorf("before they could report again: %s", w.body)
		}
	}
	s.until(back + afterOutage + 15*time.Second) // the watch needs some time to be re-established
	s.wantLast("Unknown ReporterStale", "when they could have")
}

// One request a minute has no answer, because a load balancer has a dead backend. One node is silent.
func TestOneSilentNodeStopsNothingThatIsWrittenOfTheOthers(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		for i := 1; i <= 60; i++ { // ten minutes
			s.report("a")
			s.reports["a"][0].KEKID = "k-8"
			if i == 50 {
				s.reports["a"][0].Status = contract.Unhealthy
			}
			if i%6 == 1 {
				s.unanswered()
			}
			s.shows()
			if all := s.written(); len(all) > 0 {
				if s.showWritten(); strings.Contains(all[len(all)-1].body, `"type":"KMSWriteKeyAgreed","status":"True"`) {
					t.Fatalf("after %d0 s: %s", i, all[len(all)-1].body)
				}
			}
			want := "Unknown ReporterStale"
			if i == 50 {
				want = "True PluginUnhealthy"
			}
			if got, silent := degraded(s.shown), i > 4+6+1; silent && got != want {
				t.Fatalf("after %d0 s: %s, want %s", i, got, want)
			}
			s.until(time.Duration(i) * 10 * time.Second)
		}
		if n := len(s.written()); n > 10 {
			t.Errorf("%d writes", n)
		}
	})
}

// An unhealthy plugin is reported, although other reports are missing.
func TestAnUnhealthyPluginIsReportedDuringAnOutage(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.until(10 * time.Second)
		s.reports["a"][0].Status = contract.Error
		s.failing(errAway)
		s.shows()
		s.away()
		s.until(20 * time.Second)
		s.failing(nil)
		s.until(26 * time.Second)
		if last := s.wantLast("True PluginError", "when it can be written"); last.at < 20*time.Second {
			t.Errorf("written at %s", last.at)
		}
		if v := s.Verdict("api"); v.Degraded.Status != operatorstatus.True {
			t.Errorf("the verdict is %+v", v)
		}
	})
}

// An outdated list of pods does not contain the API server of a new node.
func TestPodsThatCanNoLongerBeListedAreNotHealthy(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.add(informers.Nodes, "", nodeObject("new"))
		s.until(5 * time.Second)
		s.refuse(informers.Pods, apierrors.NewForbidden(informers.Pods.GroupResource(), "", nil))
		s.until(15 * time.Second)
		s.wantWrites(0, "while the API server may just have started")
		s.until(25 * time.Second)
		if w := s.wantLast("Unknown SourceUnreadable", "then"); !strings.Contains(w.body, "WriteKeyUnknown") {
			t.Errorf("written: %s", w.body)
		}
	})
}

// Conditions of an earlier process are not kept forever if this process never had the right to list pods.
func TestPodsThatCouldNeverBeListedAreNotHealthy(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.listing(informers.Pods, apierrors.NewForbidden(informers.Pods.GroupResource(), "", nil))
		s.report("a", "b")
		s.shown = s.earlier()
		s.show()
		s.set(withKeys("2").but(func(t *delivery.Snapshot) {
			t.Status = delivery.Status{Reason: contract.SourceUnreadable, Message: "pods cannot be listed"}
		}))
		s.until(informers.AuthorizerWarmup)
		if all := s.written(); len(all) > 0 && degraded(all[len(all)-1].apply) != "False AsExpected" {
			t.Errorf("while the API server may just have started: %s", all[len(all)-1].body)
		}
		s.until(time.Hour)
		if w := s.wantLast("Unknown SourceUnreadable", "later"); strings.Contains(w.body, "kek-2") {
			t.Errorf("written: %s", w.body)
		}
		s.wantsRemoved(0, "where no pod is known, none is known to be gone")
	})
}

// While an API server answers lists of pods with errors, conditions of an earlier process stay: a retry may succeed.
func TestPodsThatFailToBeListedChangeNoCondition(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.listing(informers.Pods, apierrors.NewInternalError(context.DeadlineExceeded))
		s.report("a", "b")
		s.shown = s.earlier()
		s.show()
		s.set(withKeys("2"))
		s.until(time.Minute)
		for _, w := range s.written() {
			if got := degraded(w.apply); got != "False AsExpected" {
				t.Errorf("written: %s, want the condition of before: %s", got, w.body)
			}
		}
	})
}

// A new process cannot know which pod the report of a deleted reporter was about, so that report does not count. The
// next reporter's does.
func TestUnhealthyPluginStaysSoUntilTheNextReporterReports(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.report("a", "b")
		s.reports["a"][0].Status, s.reports["a"][0].Reporter = contract.Unhealthy, "11111111-2222-3333-4444-555555555555"
		s.shown = []any{map[string]any{"type": contract.PluginsDegraded, "status": operatorstatus.True,
			"reason": contract.PluginUnhealthy, "message": "x", "lastTransitionTime": s.start.UTC().Format(time.RFC3339)}}
		s.show()
		s.set(withKeys("2"))
		for s.settled(); time.Since(s.start) < rollup.FirstReport-interval; s.until(s.now() + interval) {
			if s.report("b"); len(s.written()) > 0 {
				s.showWritten()
			} else {
				s.show()
			}
			if got := degraded(s.shown); got != "True PluginUnhealthy" {
				t.Fatalf("at %s: %s", time.Since(s.start), got)
			}
		}
		s.showReports("a", "b")
		s.settled()
		if s.showWritten(); degraded(s.shown) != "False AsExpected" {
			t.Errorf("when it reports: %s", degraded(s.shown))
		}
	})
}

// A rotation waits until keys have been agreed on for some minutes. One slow answer of a plugin must not begin them anew.
func TestOneTimeOutEndsNoAgreement(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.report("a", "b")
		of := &s.reports["a"][0]
		of.Status, of.Reason, of.KEKID = contract.Error, contract.Timeout, ""
		s.shows()
		if w := s.wantVerdict(1, "True PluginError", "at the time-out"); !strings.Contains(w.body, `"type":"KMSWriteKeyAgreed","status":"True"`) {
			t.Errorf("written: %s", w.body)
		}
	})
}
