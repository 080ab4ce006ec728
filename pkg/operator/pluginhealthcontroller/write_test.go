package pluginhealthcontroller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// removals returns the writes that remove reports.
func (s *fixture) removals() []request {
	return slices.DeleteFunc(s.written(), func(w request) bool { return w.kind != types.JSONPatchType })
}

// wantsRemoved requires a number of removals since the start, and returns the last.
func (s *fixture) wantsRemoved(n int, when string) request {
	s.Helper()
	return s.want(s.removals(), n, when)
}

// stale makes a node report once, and waits until its report is stale. Meanwhile a and b report.
func (s *fixture) stale(node string) {
	s.Helper()
	s.showReports(node)
	stale := s.now() + syncqueue.CoalescePeriod + contract.StaleIntervals*interval
	s.until(stale - interval)
	s.wantsRemoved(0, "while it may be written")
	s.showReports("a", "b")
	s.until(stale)
}

// ghost adds a report of a node that does not exist, and waits for its removal. The watch does not show that yet.
func (s *fixture) ghost() {
	s.Helper()
	s.begin()
	s.stale("z")
	w := s.wantsRemoved(1, "a report of no Node")
	// The roll-up's three conditions, and the conditions of a and b, come before it.
	if want := fmt.Sprintf(`"value":"%d"},{"op":"remove","path":"/status/conditions/5"}]`,
		s.version); !strings.HasSuffix(w.body, want) {
		s.Errorf("removed by %s, want %s", w.body, want)
	}
}

func TestARemovalIsNotRepeatedWhileTheWatchLagsBehind(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.ahead = 1
		s.ghost()
		s.addPod("c") // causes a sync; the resource is unchanged
		s.Queue.Enqueue("api")
		s.settled()
		s.wantsRemoved(1, "while the watch does not show it")
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
		for i := range 20 {
			s.until(time.Duration(i+6) * 10 * time.Second)
			s.showReports("a", "b", "z")
		}
		stale := s.now() + syncqueue.CoalescePeriod + contract.StaleIntervals*interval
		s.until(stale - 1)
		s.wantsRemoved(1, "while its reporter writes, and until its last report is stale")
		s.until(stale)
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

// A conflict means that the resource was written since it was read, so the controller waits for the watch. A denial by
// admission is retried.
func TestRemovalThatIsRefused(t *testing.T) {
	kind := cluster.GroupVersion().WithKind("KubeAPIServer").GroupKind()
	for name, tt := range map[string]struct {
		refusal error
		counts  bool
	}{
		"a conflict": {apierrors.NewConflict(cluster.GroupResource(), "cluster", nil), false},
		"denied":     {apierrors.NewInvalid(kind, "cluster", nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(s *fixture) {
				s.begin()
				s.failing(tt.refusal)
				s.stale("z")
				s.pass(interval)
				tried := len(s.removals())
				got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("api"))
				if (tried > 1) != tt.counts || (got == float64(tried)) != tt.counts || slices.Contains(s.events, "ReportRemoved") {
					t.Errorf("%d removals, %v failures are counted, events %q", tried, got, s.events)
				}
				s.failing(nil)
				s.showReports("a", "b")
				s.pass(syncqueue.LastRetry) // the backoff after a denial
				s.wantsRemoved(tried+1, "when it has changed")
			})
		})
	}
}

// After a failed removal the controller does not wait until the reports are stale.
func TestRemovalOfATargetThatIsOffIsTriedAgain(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.failing(apierrors.NewInvalid(cluster.GroupVersion().WithKind("KubeAPIServer").GroupKind(), "cluster", nil))
		s.sets(withKeys("2").but(func(t *delivery.Snapshot) { t.Off, t.Clean = true, true }))
		tried := len(s.removals())
		s.failing(nil)
		s.pass(syncqueue.LastRetry)
		if got := len(s.removals()); tried == 0 || got <= tried {
			t.Errorf("%d removals were denied, and %d tried after that", tried, got-tried)
		}
	})
}

func TestLeftovers(t *testing.T) {
	const valid = contract.StaleIntervals * 30 * time.Second
	aged := func(node string, age time.Duration) rollup.Report {
		r := report(node, "2")
		r.Entries[0].Changed = now.Add(-age)
		return r
	}
	unreadable := report("z")
	unreadable.Err, unreadable.Entries = errors.New("x"), []rollup.Entry{{Changed: now.Add(-valid)}}
	typed := aged("z", time.Hour)
	typed.Form = operatorstatus.FormTyped
	for _, tt := range []struct {
		name         string
		report       rollup.Report
		off, removed bool
		due          time.Duration // from now; zero: not checked
		stays        bool
	}{
		{"a node that should report, stale for long", aged("a", time.Hour), false, false, 0, true},
		{"its plugins are not known", aged("c", time.Hour), false, false, 0, true},
		{"there is no Node, fresh", aged("z", 0), false, false, valid, true},
		{"there is no Node, stale", aged("z", valid), false, false, 0, false},
		{"there is no Node, unreadable", unreadable, false, false, 0, false},
		{"there is no Node, typed", typed, false, false, 0, true},
		{"no pod, or none with a plugin, fresh", aged("b", 0), false, false, valid + rollup.QuietPeriod, true},
		{"no plugin, just stale", aged("b", valid), false, false, rollup.QuietPeriod, true},
		{"no plugin, stale for a QuietPeriod", aged("b", valid+rollup.QuietPeriod), false, false, 0, false},
		{"off", aged("a", 0), true, false, 0, false},
		{"off, typed", typed, true, false, 0, true},
		{"off, and written again", aged("a", 0), true, true, valid, true},
		{"off, written again, and stale", aged("a", valid), true, true, 0, false},
	} {
		s := syncingOf(withKeys("2").but(func(t *delivery.Snapshot) { t.Off, t.Clean = tt.off, tt.off }), abc)
		s.removed = tt.removed
		gone := s.leftovers(&rollup.Input{Reports: []rollup.Report{tt.report},
			Nodes: []rollup.Node{{Name: "a", Keys: []string{"2"}}, {Name: "b", Keys: []string{}}, {Name: "c"}}}, &rollup.Result{})
		if (len(gone) == 0) != tt.stays {
			t.Errorf("%s: %+v", tt.name, gone)
		}
		if tt.due > 0 && !s.again.Equal(now.Add(tt.due)) {
			t.Errorf("%s: again in %s, want %s", tt.name, s.again.Sub(now), tt.due)
		}
	}
}

// Reports of an Unmanaged target are not removed; its state is still reported.
func TestUnmanagedTargetKeepsItsReports(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.addAgent("a") // without a reporter a node is not expected to report
		stale := s.begin(withKeys("2").but(func(t *delivery.Snapshot) { t.Unmanaged = true }))
		s.showReports("z")
		s.until(stale + readAnew)
		s.wantsRemoved(0, "unmanaged")
		if w := s.wantWrites(1, "all have stopped reporting"); degraded(w.apply) != "Unknown ReporterStale" ||
			!strings.Contains(w.body, `"message":"node a: `) {
			t.Errorf("written: %s", w.body)
		}
		s.sets(withKeys("2").but(func(t *delivery.Snapshot) { t.Unmanaged, t.Off, t.Clean = true, true, true }))
		s.wantWrites(1, "off")
		if v := s.Verdict("api"); !v.Judged || v.Done || v.Degraded.Type != "" {
			t.Errorf("the verdict is %+v", v)
		}
	})
}

// Whoever writes a report chooses its node, and some reports stay, as OpenShift's typed report of a removed node does.
// With a series, KMSNothingReported would fire permanently once no API server runs there.
func TestReportOfANodeThatIsNotExpectedHasNoSeries(t *testing.T) {
	withFixture(t, func(s *fixture) {
		check := func(when string) {
			t.Helper()
			s.metrics.mu.Lock()
			defer s.metrics.mu.Unlock()
			var nodes []string
			for _, row := range s.metrics.results["api"].Rows {
				nodes = append(nodes, row.Node)
			}
			if !slices.Equal(nodes, []string{"a", "b"}) {
				t.Errorf("%s: the metrics are of %q", when, nodes)
			}
		}
		s.report("z")
		stale := s.begin(withKeys("2").but(func(t *delivery.Snapshot) { t.Unmanaged = true }))
		check("fresh")
		s.until(stale + readAnew + time.Minute)
		check("stale")
	})
}

func TestATargetThatIsOffIsDoneWhenNothingIsLeft(t *testing.T) {
	withFixture(t, func(s *fixture) {
		done := func(want bool, when string) {
			t.Helper()
			if v := s.Verdict("api"); !v.Judged || v.Done != want || v.Degraded.Type != "" {
				t.Errorf("%s: the verdict is %+v", when, v)
			}
		}
		s.begin()
		off := withKeys("2").but(func(t *delivery.Snapshot) { t.Off = true })
		s.sets(off)
		if w := s.wantsRemoved(1, "the roll-up is removed first"); strings.Count(w.body, "remove") != len(rollup.Types) {
			t.Errorf("written: %s", w.body)
		}
		s.shown = nil
		s.shows()
		done(false, "reporters may still write")

		off.Clean = true
		s.sets(off)
		s.wantsRemoved(2, "none writes")
		for range 3 {
			s.Queue.Enqueue("api")
			s.settled()
		}
		s.wantsRemoved(2, "once")

		// A reporter writes its report again, which does not delay the removal.
		delete(s.reports, "b")
		for range 2 {
			s.pass(time.Second)
			s.showReports("a")
			s.settled()
		}
		s.wantsRemoved(2, "it was written again")
		done(true, "a report was written again")
		s.reports = nil
		s.shows()
		done(true, "all are gone")
		if len(s.metrics.results) > 0 {
			t.Errorf("metrics of it: %v", s.metrics.results)
		}
		s.wantWrites(2, "and nothing more")

		// The target is enabled again, and cannot be judged. The condition with the reason must be removed again later.
		s.set(withKeys("2").but(func(t *delivery.Snapshot) {
			t.SetsKnown, t.Status = false, delivery.Status{Reason: contract.NamespaceMissing, Message: "it is missing"}
		}))
		if s.Verdict("api").Done {
			t.Error("done as soon as it is on again")
		}
		s.settled()
		s.wantWrites(3, "on again")
		if s.Verdict("api").Done {
			t.Error("done, and there are conditions")
		}
	})
}

// A condition that stays after the operator withdrew its own belongs to another manager.
func TestATargetThatIsOffIsDoneThoughAnotherManagersConditionIsLeft(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		clear(s.reports)
		s.sets(withKeys("2").but(func(t *delivery.Snapshot) { t.Off, t.Clean = true, true }))
		for range 2 {
			s.show() // without reports, but with the conditions
			s.settled()
		}
		s.wantWrites(1, "the reports and the roll-up, once")
		s.showReports("z") // which nobody removes
		for range 2 {
			if s.settled(); !s.Verdict("api").Done {
				t.Errorf("the verdict is %+v", s.Verdict("api"))
			}
			s.pass(10 * time.Minute)
		}
	})
}

// A condition that a person's edit owns, too, is removed. Another manager's condition stays.
func TestWithdrawalKeepsWhatAnotherManagerOwns(t *testing.T) {
	withFixture(t, func(s *fixture) {
		owned := func(manager string) any {
			return map[string]any{"manager": manager, "fieldsV1": map[string]any{"f:status": map[string]any{
				"f:conditions": map[string]any{`k:{"type":"KMSPluginsDegraded"}`: map[string]any{}}}}}
		}
		for other, want := range map[string]int{"kubectl-edit": 1, contract.OperatorName: 1, "kms-plugins-operator": 0} {
			s.settled() // no informer lists while the reactors change
			before := len(s.removals())
			o := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{
				"metadata": map[string]any{"managedFields": []any{owned(contract.OperatorName), owned(other)}},
				"status":   map[string]any{"conditions": []any{map[string]any{"type": contract.PluginsDegraded}}}}}}}
			s.client.PrependReactor("list", cluster.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, o, nil })
			sync := &healthSync{Controller: s.Controller, healthState: &healthState{}, target: &withKeys("2").Snapshot}
			if err := sync.remove(s.ctx, []string{contract.PluginsDegraded}); err != nil || len(s.removals())-before != want {
				t.Errorf("beside %s: %d removals, want %d (%v)", other, len(s.removals())-before, want, err)
			}
		}
	})
}

func TestTargetOfAnotherInstallationWritesNothing(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.showReports("a", "b", "z")
		s.set(withKeys("2").but(func(t *delivery.Snapshot) { t.OtherInstallation = true }))
		s.until(time.Hour)
		s.wantWrites(0, "another has the resource")
		if v := s.Verdict("api"); !v.Judged || !v.Done {
			t.Errorf("the verdict is %+v", v)
		}
	})
}

// A restored etcd has lower resource versions, and the conditions of the backup.
func TestRestoredEtcdIsWrittenAnew(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.version = 5000000
		s.begin()
		s.reports["a"][0].Status = contract.Error
		s.shows()
		s.showWritten()
		backup := slices.Clone(s.shown)
		s.showReports("a", "b")
		s.settled()
		s.showWritten()
		if got := degraded(s.shown); got != "False AsExpected" {
			t.Fatalf("before the restore: %s", got)
		}
		n := len(s.written())
		s.version, s.shown = 4000000, backup
		s.showReports("a", "b")
		s.settled()
		if all := s.written(); len(all) == n || degraded(all[len(all)-1].apply) != "False AsExpected" {
			t.Errorf("the condition of the backup stays: %d writes, then %d", n, len(all))
		}
		s.showWritten()
		s.wantQuiet()
	})
	// The watch does not show the restore. The answer to a write does.
	withFixture(t, func(s *fixture) {
		s.version, s.ahead = 5000000, 1
		s.begin()
		s.blind.Store(true)
		s.version = 4000000
		s.show()
		s.sets(withKeys("2").but(func(p *delivery.Snapshot) { p.State.NotProbed = "provider old is not probed" }))
		for range 5 {
			s.Queue.Enqueue("api")
			s.settled()
		}
		s.wantVerdict(2, "Unknown ProviderNotProbed", "to the resource of before, and to that of the backup")
		s.blind.Store(false)
		s.showWritten()
		s.wantQuiet()
	})
}

// wantQuiet requires that nothing is written for two minutes, and no Event, while all nodes report.
func (s *fixture) wantQuiet() {
	s.Helper()
	writes, events := len(s.written()), len(s.events)
	for range 12 {
		s.pass(interval)
		s.showReports("a", "b")
	}
	if s.wantWrites(writes, "while nothing changes"); len(s.events) != events {
		s.Errorf("events %q", s.events[events:])
	}
}

// The operator does not overwrite a condition that another manager owns, except after a person's edit.
func TestConditionOfAnotherOwnerIsNotWritten(t *testing.T) {
	conflict := func(manager string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict,
				Message: fmt.Sprintf("conflict with %q using v1", manager), Field: `.status.conditions[k:{"type":"KMSPluginsDegraded"}].status`}}}}}
	}
	for manager, yields := range map[string]bool{"kms-plugins-operator": true, "kubectl-edit": false} {
		t.Run(manager, func(t *testing.T) {
			withFixture(t, func(s *fixture) {
				s.begin()
				s.locked(func() { s.conflict = conflict(manager) })
				s.reports["a"][0].Status = contract.Error
				s.show()
				s.pass(3 * time.Second)
				s.failing(errAway) // also the next try to own it
				s.pass(resync)
				s.failing(nil)
				s.pass(syncqueue.LastRetry)
				all := s.written()
				for _, w := range all { // a restarted operator would report that none owns it
					if degraded(w.apply) == "" && !strings.Contains(w.body, contract.OtherOwner) {
						t.Errorf("written before the owner is known: %s", w.body)
					}
				}
				last := all[len(all)-1]
				if has := degraded(last.apply) != ""; has == yields || strings.Contains(last.body, contract.OtherOwner) != yields {
					t.Errorf("written: %s", last.body)
				}
				if v := s.Verdict("api"); v.Degraded.Status != operatorstatus.True { // the verdict is unchanged
					t.Errorf("the verdict is %+v", v)
				}
				if of := s.metrics.results["api"].Conditions; len(of) != len(rollup.Types) { // so is what is scraped meanwhile
					t.Errorf("the metrics have %+v", of)
				}
			})
		})
	}
}
