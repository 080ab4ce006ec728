package pluginhealthcontroller

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Reports do not age while the operator cannot see them, so reporters have time to recover after an outage of any
// length.
func TestReportsDoNotBecomeStaleDuringAnOutage(t *testing.T) {
	for _, lasts := range []time.Duration{5 * time.Second, 25 * time.Second, time.Minute, time.Hour} {
		for _, speaks := range []bool{true, false} {
			name := lasts.String() + ", and they report again"
			if !speaks {
				name = lasts.String() + ", and they do not report again"
			}
			t.Run(name, func(t *testing.T) {
				withFixture(t, func(s *fixture) {
					stale := s.begin()
					s.until(stale - 3*time.Second)
					s.away()
					back := time.Since(s.start) + lasts
					s.until(back)
					s.wantWrites(0, "while the API server is away")
					s.listing(cluster, nil)
					if speaks {
						s.until(back + 5*time.Second)
						s.report("a", "b")
						s.show()
						s.until(back + 30*time.Second)
						s.wantWrites(0, "when they report again")
						return
					}
					s.wantExcused(back)
				})
			})
		}
	}
}

// unanswered makes now the time of a request without a response.
func (s *fixture) unanswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silence = time.Now()
}

// wantExcused requires stale reports to be excused for the period afterOutage once the API server is back.
func (s *fixture) wantExcused(back time.Duration) {
	s.Helper()
	s.until(back + afterOutage - outageSync)
	for _, w := range s.written() { // only KMSWriteKeyAgreed may be written
		if degraded(w.apply) != "False AsExpected" {
			s.Errorf("before they could report again: %s", w.body)
		}
	}
	s.until(back + afterOutage + 15*time.Second) // the watch needs some time to be re-established
	all := s.written()
	if len(all) == 0 || degraded(all[len(all)-1].apply) != "Unknown ReporterStale" {
		s.Errorf("when they could have: %+v", all)
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
			s.show()
			s.settled()
			if all := s.written(); len(all) > 0 {
				s.showWritten()
				if strings.Contains(all[len(all)-1].body, `"status":"True","type":"KMSWriteKeyAgreed"`) {
					t.Fatalf("after %d0 s: %s", i, all[len(all)-1].body)
				}
			}
			if got, silent := degraded(s.shown), i > 7+30+1; i != 50 && silent && got != "Unknown ReporterStale" || i == 50 && got != "True PluginUnhealthy" {
				t.Fatalf("after %d0 s: %s", i, got)
			}
			s.until(time.Duration(i) * 10 * time.Second)
		}
		if n := len(s.written()); n > 10 {
			t.Errorf("%d writes", n)
		}
	})
}

// When a node's network is cut, the operator may lose a connection to that node's API server after it has reported the
// node's silence.
func TestAnExcuseKeepsNoVerdictThatIsOver(t *testing.T) {
	withFixture(t, func(s *fixture) {
		cut := s.begin() + 5*time.Second
		s.until(cut)
		if w := s.wantWrites(1, "when they are silent"); degraded(w.apply) != "Unknown ReporterStale" {
			s.Fatalf("written: %s", w.body)
		}
		s.showWritten()
		s.unanswered()
		for _, name := range []string{"a", "b"} {
			conditions := []any{map[string]any{"type": "Ready", "status": "Unknown"}}
			if err := s.client.Tracker().Update(informers.Nodes, &unstructured.Unstructured{Object: map[string]any{
				"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": name},
				"status": map[string]any{"conditions": conditions}}}, ""); err != nil {
				s.Fatal(err)
			}
		}
		s.settled()
		if w := s.wantWrites(2, "when the Nodes are not Ready"); degraded(w.apply) != "False AsExpected" {
			s.Errorf("written: %s", w.body)
		}
	})
}

// The API server restarts while a plugin is unhealthy, and its new pod has no report yet.
func TestAnExcuseKeepsThatAPluginIsUnhealthy(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.reports["a"][0].Status = contract.Error
		s.show()
		s.settled()
		if w := s.wantWrites(1, "when it is unhealthy"); degraded(w.apply) != "True PluginError" {
			s.Fatalf("written: %s", w.body)
		}
		s.showWritten()
		s.unanswered()
		delete(s.reports, "a")
		s.show()
		s.until(time.Since(s.start) + 20*time.Second)
		if all := s.written(); degraded(all[len(all)-1].apply) == "False AsExpected" {
			t.Errorf("while its report is missing: %s", all[len(all)-1].body)
		}
	})
}

// Without the right to read the resource the operator's copy is outdated, while reporters go on writing.
func TestADenialExcusesReports(t *testing.T) {
	withFixture(t, func(s *fixture) {
		denied := s.begin() - 3*time.Second
		s.until(denied)
		s.refuse(cluster, apierrors.NewForbidden(cluster.GroupResource(), "", nil))
		back := denied + 63*time.Second
		s.until(back)
		s.wantWrites(0, "while it may not be read")
		s.listing(cluster, nil)
		s.wantExcused(back)
	})
}

// A starting API server may deny requests that it allows a moment later. Reporters still need the full time to recover.
func TestRefusalAfterAnOutageDoesNotShortenTheTimeToRecover(t *testing.T) {
	withFixture(t, func(s *fixture) {
		back := s.begin() + time.Minute
		s.away()
		s.until(back)
		s.listing(cluster, apierrors.NewForbidden(cluster.GroupResource(), "", nil))
		s.until(back + 2*outageSync)
		s.listing(cluster, nil)
		s.wantExcused(back + 2*outageSync)
	})
}

// An unhealthy plugin is reported, although other reports are missing.
func TestAnUnhealthyPluginIsReportedDuringAnOutage(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.until(10 * time.Second)
		s.reports["a"][0].Status = contract.Error
		s.failing(errAway)
		s.show()
		s.settled()
		s.away()
		s.until(20 * time.Second)
		s.failing(nil)
		s.until(26 * time.Second)
		all := s.written()
		if last := all[len(all)-1]; degraded(last.apply) != "True PluginError" || last.at < 20*time.Second {
			t.Errorf("written: %+v", last)
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
		s.add(informers.Nodes, "", map[string]any{"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": "new"},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
		s.until(5 * time.Second)
		s.refuse(informers.Pods, apierrors.NewForbidden(informers.Pods.GroupResource(), "", nil))
		s.until(15 * time.Second)
		s.wantWrites(0, "while the API server may just have started")
		s.until(25 * time.Second)
		all := s.written()
		if last := all[len(all)-1]; degraded(last.apply) != "Unknown SourceUnreadable" ||
			!strings.Contains(last.body, "WriteKeyUnknown") {
			t.Errorf("written: %s", last.body)
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
		all := s.written()
		if last := all[len(all)-1]; degraded(last.apply) != "Unknown SourceUnreadable" || strings.Contains(last.body, "kek-2") {
			t.Errorf("written: %s", last.body)
		}
		s.wantsRemoved(0, "where no pod is known, none is known to be gone")
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
		for s.settled(); time.Since(s.start) < rollup.FirstReport-interval; s.until(time.Since(s.start) + interval) {
			if s.report("b"); len(s.written()) > 0 {
				s.showWritten()
			} else {
				s.show()
			}
			if got := degraded(s.shown); got != "True PluginUnhealthy" {
				t.Fatalf("at %s: %s", time.Since(s.start), got)
			}
		}
		s.report("a", "b")
		s.show()
		s.settled()
		if s.showWritten(); degraded(s.shown) != "False AsExpected" {
			t.Errorf("when it reports: %s", degraded(s.shown))
		}
	})
}
