//go:build integration

package rollup

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A third-party writer of healthReports does not affect the delivery for others: neither
// a report that is fresh, nor that it becomes old between two writes.
func TestThirdPartyReportsDoNotChangeTheDelivery(t *testing.T) {
	shifted := newShiftedCluster(t)
	op := fixture.NewOperator(t)
	op.Server, op.CA = shifted.URL, shifted.ca
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t); removeReports(t, apiservers.Kube) })
	op.Configure(fixture.Every("30s", apiservers.Kube.Target()))
	op.Start("")
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	was := fixture.PodUIDs(t, fixture.Companions)
	// It writes every three minutes.
	for i := range 4 {
		shifted.content.Store(int64(-time.Duration(i%2) * 3 * time.Minute))
		typedReports(t, apiservers.Kube, "kms-preflight", fixture.NodeNames[0], "Healthy", time.Now().Add(time.Duration(i)*time.Second))
		op.Configure(fixture.Every(fmt.Sprintf("3%ds", i+1), apiservers.Kube.Target()))
		fixture.Never(t, 1500*time.Millisecond, func() error {
			if now := fixture.PodUIDs(t, fixture.Companions); !maps.Equal(now, was) {
				return fmt.Errorf("companions are %v, were %v", now, was)
			}
			return nil
		})
	}
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}
