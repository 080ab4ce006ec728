//go:build integration

package rollup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// expectOneWriteEach makes a plugin unhealthy and healthy again, twice: each change is rolled
// up soon, by one write of the operator.
func expectOneWriteEach(t *testing.T, reporters []*fixture.Reporter) {
	t.Helper()
	// When the first such report, and when the verdict, was first to be seen.
	var mu sync.Mutex
	seen := map[string]time.Time{}
	fixture.WatchResource(t, apiservers.Kube, func(at time.Time, r *operatorcr.Status) {
		mu.Lock()
		defer mu.Unlock()
		note := func(what string) {
			if _, had := seen[what]; !had {
				seen[what] = at
			}
		}
		for _, report := range r.Reports {
			if report.Node == "master-1" && len(report.Entries) == 1 {
				note("report " + string(report.Entries[0].Status))
			}
		}
		note("verdict " + r.Conditions[contract.PluginsDegraded].Status)
	})
	took := func(from, to string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if after := seen[to].Sub(seen[from]); seen[to].IsZero() || seen[from].IsZero() || after > fixture.RollUpWithin {
			t.Errorf("%s came %s after %s, must be at most %s", to, after, from, fixture.RollUpWithin)
		} else {
			t.Logf("%s came %s after %s", to, after.Round(time.Millisecond), from)
		}
		clear(seen)
	}
	await := func(what string) {
		t.Helper()
		fixture.Eventually(t, what+" is seen", func() error {
			mu.Lock()
			defer mu.Unlock()
			if seen[what].IsZero() {
				return fmt.Errorf("seen: %v", seen)
			}
			return nil
		})
	}
	await("verdict False")
	mu.Lock()
	clear(seen)
	mu.Unlock()
	for range 2 {
		was := len(fixture.OperatorWrites(t))
		if err := reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}); err != nil {
			t.Fatal(err)
		}
		await("verdict True")
		took("report unhealthy", "verdict True")
		c := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded]
		if c.Reason != contract.PluginUnhealthy || !strings.Contains(c.Message, "key 1 on node master-1: unhealthy") || !strings.Contains(c.Message, "vault is sealed") {
			t.Errorf("%+v", c)
		}
		writes := fixture.AwaitNoWrites(t)
		if len(writes) != was+1 {
			t.Errorf("%d writes, want 1:\n%s", len(writes)-was, fixture.Texts(writes[was:]))
		}
		mu.Lock()
		clear(seen)
		mu.Unlock()
		if err := reporters[1].Plugin.ClearFaults(); err != nil {
			t.Fatal(err)
		}
		await("verdict False")
		took("report healthy", "verdict False")
		again := fixture.AwaitNoWrites(t)
		if len(again) != len(writes)+1 {
			t.Errorf("%d writes, want 1:\n%s", len(again)-len(writes), fixture.Texts(again[len(writes):]))
		}
		mu.Lock()
		clear(seen)
		mu.Unlock()
	}
}

// A reporter that is killed, or hangs, is reported one second after its last report has
// become stale, and not before.
func TestSilenceIsReportedWhenItIsCertain(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil)
	var mu sync.Mutex
	last := map[string]time.Time{} // by node, when its entry becomes stale
	reported := time.Time{}        // when Unknown was seen
	fixture.WatchResource(t, apiservers.Kube, func(at time.Time, r *operatorcr.Status) {
		mu.Lock()
		defer mu.Unlock()
		for i := range r.Reports {
			for _, e := range r.Reports[i].Entries {
				last[r.Reports[i].Node] = e.StaleAt()
			}
		}
		if r.Conditions[contract.PluginsDegraded].Status == operatorcr.Unknown {
			if reported.IsZero() {
				reported = at
			}
		} else {
			reported = time.Time{}
		}
	})
	check := func(how string, r *fixture.Reporter) {
		t.Helper()
		c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorcr.Unknown, contract.ReporterStale)
		if !strings.Contains(c.Message, "node "+r.Node) || strings.Contains(c.Message, "key") {
			t.Errorf("%s: %q", how, c.Message)
		}
		fixture.Eventually(t, how+" is seen by the watch", func() error {
			mu.Lock()
			defer mu.Unlock()
			if reported.IsZero() {
				return errors.New("not yet")
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		if after := reported.Sub(last[r.Node]); after <= 0 || after > time.Second {
			t.Errorf("%s: reported %s after the instant, must be within a second and not before", how, after)
		} else {
			t.Logf("%s: reported %s after the instant", how, after.Round(time.Millisecond))
		}
	}
	reporters[0].Signal(t, syscall.SIGSTOP)
	check("SIGSTOP", reporters[0])
	reporters[0].Signal(t, syscall.SIGCONT)
	fixture.AwaitHealthy(t)
	reporters[2].Kill(t)
	check("SIGKILL", reporters[2])
	fixture.RemoveTarget(t, op, reporters)
}

// A pod that is being deleted serves until it has ended: here one of the revision before, which
// writes without KMS. It need not report.
func TestWriteKeyIsNotAgreedOnWhileADeletedPodStillWritesWithAnother(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil)
	before := fixture.StaticPod("0", false)
	before.Name, before.Spec.NodeName, before.Finalizers = "kube-apiserver-before", "master-1", []string{"kms-health.test/still-runs"}
	pods := fixture.Kube.CoreV1().Pods(before.Namespace)
	if _, err := pods.Create(t.Context(), before, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
		defer cancel()
		if _, err := pods.Patch(ctx, before.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	c := fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, operatorcr.False, contract.WriteKeyNotDeployed)
	if !strings.Contains(c.Message, "node master-1: not in use yet: the API server writes without KMS") {
		t.Errorf("%q", c.Message)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, operatorcr.True, contract.AsExpected)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorcr.False, contract.AsExpected)
	end()
	fixture.AwaitHealthy(t)
	fixture.RemoveTarget(t, op, reporters)
}

// The report of a Node that is removed is removed: at once, and again when its reporter
// wrote once more meanwhile.
func TestReportOfARemovedNodeIsRemoved(t *testing.T) {
	for name, goesOn := range map[string]time.Duration{"at once": 0, "its reporter goes on for a while": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			op := fixture.NewOperator(t)
			reporters := fixture.StartReporting(t, op, nil)
			was := len(fixture.OperatorWrites(t))
			if goesOn == 0 {
				reporters[2].Kill(t)
			}
			began := time.Now()
			if err := fixture.Workers.RemoveNode(t.Context(), "master-2"); err != nil {
				t.Fatal(err)
			}
			addAgain := sync.OnceFunc(func() {
				ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
				defer cancel()
				if err := fixture.Workers.AddNode(ctx, "master-2"); err != nil {
					t.Errorf("add the node again: %v", err)
				}
			})
			t.Cleanup(addAgain)
			time.Sleep(goesOn)
			reporters[2].Kill(t)
			want := []string{"master-0", "master-1"}
			within, removals := 5*time.Second, 1
			if goesOn > 0 { // its last report counts for four intervals
				within, removals = goesOn+4*time.Second+fixture.RollUpWithin, 2
			}
			var since time.Time
			fixture.Eventually(t, "the node's report is deleted, and is not written again", func() error {
				if got := fixture.NodesOf(fixture.Resource(t, apiservers.Kube)); !slices.Equal(got, want) {
					since = time.Time{}
					return fmt.Errorf("of %s", got)
				}
				if since.IsZero() {
					since = time.Now()
				}
				if goesOn > 0 && time.Since(began) < within {
					return errors.New("it may come back")
				}
				return nil
			})
			if gone := since.Sub(began); gone > within {
				t.Errorf("deleted after %s, must be at most %s", gone, within)
			} else {
				t.Logf("deleted permanently after %s", gone.Round(10*time.Millisecond))
			}
			// A removal that is rejected, since the reporter wrote in between, removes nothing.
			writes := slices.DeleteFunc(fixture.OperatorWrites(t)[was:], func(w fixture.Written) bool {
				return !strings.Contains(w.What, "kms-health-operator-cleanup") || w.Code == http.StatusConflict
			})
			if len(writes) == 0 || len(writes) > removals {
				t.Errorf("%d removals, must be at most %d:\n%s", len(writes), removals, fixture.Texts(writes))
			}
			for _, node := range want {
				if e := fixture.LastChecked(t, apiservers.Kube, node); e.Freshness(time.Now()) != contract.Fresh {
					t.Errorf("%s: %+v", node, e)
				}
			}
			fixture.AwaitHealthy(t)
			// A companion that was being deleted there would go by Kubernetes' own garbage
			// collection, which takes more than a minute.
			addAgain()
			fixture.RemoveTarget(t, op, reporters)
		})
	}
}
