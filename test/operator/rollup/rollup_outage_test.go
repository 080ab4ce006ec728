//go:build integration

package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The connection to the API server dies without a word, as when the node of one of several
// loses its power. A fault is reported over another one, soon: client-go alone notices after
// 45 s that nothing answers.
func TestConnectionThatDiesWithoutAWordIsReplaced(t *testing.T) {
	proxy, err := controlplane.NewProxy(fixture.Cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	op := fixture.NewOperator(t)
	op.Server = proxy.URL()
	reporters := fixture.StartReporting(t, op, nil, "1s")
	fixture.AwaitNoWrites(t)
	for _, mode := range []controlplane.ProxyMode{controlplane.BlackHole, controlplane.Pass} {
		if err := proxy.SetMode(mode); err != nil {
			t.Fatal(err)
		}
	}
	died := time.Now()
	if err := reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorcr.True, contract.PluginUnhealthy)
	// 15 s, and a backoff.
	if took := time.Since(died); took > 30*time.Second {
		t.Errorf("reported %s after the connection died", took)
	} else {
		t.Logf("reported %s after the connection died", took.Round(time.Millisecond))
	}
	if err := reporters[1].Plugin.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitHealthy(t)
	fixture.RemoveTarget(t, op, reporters)
}
