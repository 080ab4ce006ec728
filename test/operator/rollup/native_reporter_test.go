//go:build integration

package rollup

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

const (
	reportInterval = 2 * time.Second
	// verdictWithin is how soon the verdict follows a fault, and its end: an interval, the
	// plugin's timeout, and the roll-up.
	verdictWithin = reportInterval + time.Second + fixture.RollUpWithin
	// tripRetry is how often a round trip that failed is made again, where the interval is shorter:
	// only it finds that Decrypt works again.
	tripRetry = 15 * time.Second
)

// transitions are the statuses that KMSPluginsDegraded has had, one after another.
type transitions struct {
	mu  sync.Mutex
	all []string
}

func recordTransitions(t *testing.T) *transitions {
	t.Helper()
	s := &transitions{}
	fixture.WatchResource(t, apiservers.Kube, func(_ time.Time, r *operatorcr.Status) {
		s.mu.Lock()
		defer s.mu.Unlock()
		status := r.Conditions[contract.PluginsDegraded].Status
		if n := len(s.all); status != "" && (n == 0 || s.all[n-1] != status) {
			s.all = append(s.all, status)
		}
	})
	return s
}

// seen are those until now.
func (s *transitions) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.all...)
}

// awaitLast waits until the last one is a status.
func (s *transitions) awaitLast(t *testing.T, status string) time.Duration {
	t.Helper()
	began := time.Now()
	fixture.Eventually(t, "KMSPluginsDegraded is "+status, func() error {
		if all := s.seen(); len(all) == 0 || all[len(all)-1] != status {
			return fmt.Errorf("it was %v", all)
		}
		return nil
	})
	return time.Since(began)
}

// OpenShift's own reporter writes beside ours. While a plugin is unhealthy its typed reports are
// rejected, become old and are removed; while only Decrypt fails, they go on to be healthy. Neither
// changes the verdict.
func TestVerdictIsSteadyBesideOpenShiftsReporter(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, fixture.NativeStaticPod("1"))
	}
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	fixture.AgePods(t, apiservers.Kube.Namespace)
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	companions := fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)))
	reporters := fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, reportInterval.String(), nil, companions)
	var native []*fixture.NativeReporter
	for _, r := range reporters {
		native = append(native, fixture.StartNativeReporter(t, apiservers.Kube, r.Node, r.Plugin))
	}
	fixture.StartNativePruning(t, apiservers.Kube)
	fixture.AwaitHealthy(t)
	for _, tt := range []struct {
		name     string
		fault    kmsplugin.Fault
		rejected bool // the typed reports are
	}{
		{"unhealthy", kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}, true},
		{"error", kmsplugin.Fault{Name: kmsplugin.FaultCrash}, true},
		{"hanging", kmsplugin.Fault{Name: kmsplugin.FaultHang}, true},
		{"Decrypt refused while Status is ok", kmsplugin.Fault{Name: kmsplugin.FaultRefuseDecrypt}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plugin := reporters[1].Plugin
			seen := recordTransitions(t)
			seen.awaitLast(t, operatorcr.False)
			rejected, accepted := native[1].Rejected.Load(), native[1].Accepted.Load()
			if err := plugin.SetFault(tt.fault); err != nil {
				t.Fatal(err)
			}
			if !tt.rejected { // a round trip is due at once for another key ID
				if _, err := plugin.Rotate(); err != nil {
					t.Fatal(err)
				}
			}
			found := seen.awaitLast(t, operatorcr.True)
			time.Sleep(10 * reportInterval)
			if got := seen.seen(); len(got) != 2 {
				t.Errorf("over ten intervals it was %v", got)
			}
			if tt.rejected && native[1].Rejected.Load() == rejected || !tt.rejected && native[1].Accepted.Load() < accepted+5 {
				t.Errorf("typed reports: %d rejected, %d accepted", native[1].Rejected.Load()-rejected, native[1].Accepted.Load()-accepted)
			}
			if err := plugin.ClearFaults(); err != nil {
				t.Fatal(err)
			}
			recovered := seen.awaitLast(t, operatorcr.False)
			time.Sleep(2 * reportInterval)
			if got := seen.seen(); len(got) != 3 {
				t.Errorf("in the end it was %v", got)
			}
			end := verdictWithin
			if !tt.rejected {
				end += tripRetry
			}
			if found > verdictWithin || recovered > end {
				t.Errorf("True after %s, False after %s, must be at most %s and %s", found, recovered, verdictWithin, end)
			}
			t.Logf("True after %s, False after %s, %v", found.Round(time.Millisecond), recovered.Round(time.Millisecond), seen.seen())
		})
	}
	for _, n := range native {
		n.Stop()
	}
	fixture.RemoveNativeReports(t, apiservers.Kube)
	fixture.RemoveTarget(t, op, reporters)
}

// The API server's pods get OpenShift's own reporter one node at a time, and lose it again;
// each new pod gets a new companion.
func TestUpgradeToPodsWithOpenShiftsReporterAndBackIsQuiet(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1", "2", "3")
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, apiservers.StaticPod("1"))
	}
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	fixture.AgePods(t, apiservers.Kube.Namespace)
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	companions := fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)))
	reporters := fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, reportInterval.String(), nil, companions)
	fixture.AwaitHealthy(t)
	seen := recordTransitions(t)
	seen.awaitLast(t, operatorcr.False)
	fixture.StartNativePruning(t, apiservers.Kube)
	replace := func(i int, pod *corev1.Pod) {
		t.Helper()
		r, before := reporters[i], companions[reporters[i].Node]
		fixture.RunStatic(t, r.Node, pod)
		fixture.Eventually(t, r.Node+" has a new companion", func() error {
			companions = fixture.UIDsByNode(fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)))
			if companions[r.Node] == before {
				return errors.New("it has the one of the pod before")
			}
			return nil
		})
		r.Kill(t) // it ends with its pod
		reporters[i] = fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, reportInterval.String(), r.Plugin, companions, r.Node)[0]
		time.Sleep(2 * reportInterval)
	}
	native := make([]*fixture.NativeReporter, len(reporters))
	for i, r := range reporters {
		replace(i, fixture.NativeStaticPod("2"))
		native[i] = fixture.StartNativeReporter(t, apiservers.Kube, r.Node, r.Plugin)
	}
	for i := range reporters {
		native[i].Stop()
		replace(i, apiservers.StaticPod("3"))
	}
	fixture.AwaitHealthy(t)
	if got := seen.seen(); len(got) != 1 {
		t.Errorf("KMSPluginsDegraded was %v", got)
	}
	fixture.RemoveNativeReports(t, apiservers.Kube)
	fixture.RemoveTarget(t, op, reporters)
}
