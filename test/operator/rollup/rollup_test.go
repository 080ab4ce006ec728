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

// expectOneWriteEach makes a plugin unhealthy and healthy again, twice. The operator must write once for each change.
func expectOneWriteEach(t *testing.T, reporters []*fixture.Reporter) {
	t.Helper()
	was := len(fixture.OperatorWrites(t))
	expect := func(status, reason string) (c operatorstatus.Condition) {
		t.Helper()
		var err error
		if status == operatorstatus.True {
			err = reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}})
		} else {
			err = reporters[1].Plugin.ClearFaults()
		}
		must.Succeed(t, err)
		c = fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, status, reason)
		writes := fixture.AwaitNoWrites(t)
		if len(writes) != was+1 {
			t.Errorf("%s: %d writes, want 1:\n%s", status, len(writes)-was, fixture.Texts(writes[was:]))
		}
		was = len(writes)
		return c
	}
	for range 2 {
		c := expect(operatorstatus.True, contract.PluginUnhealthy)
		if !strings.Contains(c.Message, "key 1 on node master-1: unhealthy") || !strings.Contains(c.Message, "vault is sealed") {
			t.Errorf("%+v", c)
		}
		expect(operatorstatus.False, contract.AsExpected)
	}
}

// A reporter that was killed or hangs must be reported when its last report becomes stale, and not earlier.
func TestSilenceIsReportedWhenItIsCertain(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil, fixture.Steady.String())
	var mu sync.Mutex
	last := map[string]time.Time{} // when the last entry becomes stale, by node
	var early []string
	silent := ""
	fixture.WatchResource(t, apiservers.Kube, func(at time.Time, r *operatorstatus.Status) {
		mu.Lock()
		defer mu.Unlock()
		for i := range r.Reports {
			for _, e := range r.Reports[i].Entries {
				last[r.Reports[i].Node] = e.StaleAt()
			}
		}
		if c := r.Conditions[contract.PluginsDegraded]; c.Status == operatorstatus.Unknown && silent != "" && !at.After(last[silent]) {
			early = append(early, fmt.Sprintf("at %s, stale at %s: %+v", at, last[silent], c))
		}
	})
	check := func(how string, r *fixture.Reporter) {
		t.Helper()
		mu.Lock()
		silent = r.Node
		mu.Unlock()
		c := fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.Unknown, contract.ReporterStale)
		if !strings.Contains(c.Message, "node "+r.Node) || strings.Contains(c.Message, "key") {
			t.Errorf("%s: %q", how, c.Message)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(early) > 0 {
			t.Errorf("%s: reported before it was certain: %v", how, early)
		}
		silent = ""
	}
	reporters[0].Signal(t, syscall.SIGSTOP)
	check("SIGSTOP", reporters[0])
	reporters[0].Signal(t, syscall.SIGCONT)
	fixture.AwaitHealthy(t)
	reporters[2].Kill(t)
	check("SIGKILL", reporters[2])
	fixture.Eventually(t, "the silence is recorded for the next process", func() error {
		name := contract.ReporterName(apiservers.Kube.Name)
		role, err := fixture.Client.Resource(fixture.Kinds["ClusterRole"]).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		state, err := delivery.ParseState(role.GetAnnotations()[contract.StateAnnotation])
		if err == nil && (len(state.Silent) != 1 || state.Silent[reporters[2].Node].For == 0) {
			err = fmt.Errorf("silent are %v", state.Silent)
		}
		return err
	})
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
