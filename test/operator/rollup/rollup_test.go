//go:build integration

package rollup

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// expectOneWriteEach makes a plugin unhealthy and healthy again. The operator must write once for each change.
func expectOneWriteEach(t *testing.T, plugin *kmsplugin.Plugin) {
	t.Helper()
	was := len(fixture.OperatorWrites(t))
	expect := func(status, reason, message string) {
		t.Helper()
		c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, status, reason)
		if !strings.Contains(c.Message, message) {
			t.Errorf("%+v", c)
		}
		writes := fixture.AwaitNoWrites(t)
		if len(writes) != was+1 {
			t.Errorf("%s: %d writes, want 1:\n%s", status, len(writes)-was, fixture.Texts(writes[was:]))
		}
		was = len(writes)
	}
	must.Succeed(t, plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}))
	expect(operatorstatus.True, contract.PluginUnhealthy, `node master-1: unhealthy: healthz is "vault is sealed"`)
	must.Succeed(t, plugin.ClearFaults())
	expect(operatorstatus.False, contract.AsExpected, "")
}

// The silence of a reporter that hangs must be reported when its last report becomes stale, and not earlier.
func TestSilenceIsReportedWhenItIsCertain(t *testing.T) {
	op := fixture.NewOperator(t)
	hung := fixture.StartReporting(t, op, nil, fixture.Steady.String())[0]
	var mu sync.Mutex
	var stale time.Time // when its entry becomes stale
	var early []string
	fixture.WatchResource(t, apiservers.Kube, func(at time.Time, r *operatorstatus.Status) {
		mu.Lock()
		defer mu.Unlock()
		for i := range r.Reports {
			for _, e := range r.Reports[i].Entries {
				if r.Reports[i].Node == hung.Node {
					stale = e.StaleAt()
				}
			}
		}
		if c := r.Conditions[contract.PluginsDegraded]; c.Status == operatorstatus.Unknown && !at.After(stale) {
			early = append(early, fmt.Sprintf("at %s, stale at %s: %+v", at, stale, c))
		}
	})
	hung.Signal(t, syscall.SIGSTOP)
	c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, "Unknown", contract.ReporterStale)
	if !strings.Contains(c.Message, "node "+hung.Node) || strings.Contains(c.Message, "key") {
		t.Errorf("%q", c.Message)
	}
	mu.Lock()
	if len(early) > 0 {
		t.Errorf("reported before it was certain: %v", early)
	}
	mu.Unlock()
	fixture.Eventually(t, "the silence is recorded for the next process", func() error {
		name := contract.ReporterName(apiservers.Kube.Name)
		role, err := fixture.Client.Resource(fixture.Kinds["ClusterRole"]).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		state, err := delivery.ParseState(role.GetAnnotations()[contract.StateAnnotation])
		if err == nil && (len(state.Silent) != 1 || state.Silent[hung.Node].For == 0) {
			err = fmt.Errorf("silent are %v", state.Silent)
		}
		return err
	})
	hung.Signal(t, syscall.SIGCONT)
	fixture.AwaitHealthy(t)
}

// The connection to the API server dies silently, as when the node of one of several API servers loses power. The
// operator must soon report a fault over another connection. client-go alone notices a dead connection after 45 s.
func TestConnectionThatDiesWithoutAWordIsReplaced(t *testing.T) {
	proxy, err := controlplane.NewProxy(fixture.Cluster.Address())
	must.Succeed(t, err)
	t.Cleanup(proxy.Close)
	op := fixture.NewOperator(t)
	op.Server = proxy.URL()
	reporters := fixture.StartReporting(t, op, nil, "1s")
	fixture.AwaitNoWrites(t)
	for _, mode := range []controlplane.ProxyMode{controlplane.BlackHole, controlplane.Pass} {
		must.Succeed(t, proxy.SetMode(mode))
	}
	died := time.Now()
	must.Succeed(t, reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}))
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginUnhealthy)
	// The operator needs 15 s, and a backoff of up to 4 s.
	if took := time.Since(died); took > 42*time.Second {
		t.Errorf("reported %s after the connection died", took)
	} else {
		t.Logf("reported %s after the connection died", took.Round(time.Millisecond))
	}
	must.Succeed(t, reporters[1].Plugin.ClearFaults())
	fixture.AwaitHealthy(t)
}
