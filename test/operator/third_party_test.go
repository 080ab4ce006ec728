//go:build integration

package operator

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// A third-party writer of healthReports does not affect the delivery for others: neither
// a report that is fresh, nor that it becomes old between two writes.
func TestThirdPartyReportsDoNotChangeTheDelivery(t *testing.T) {
	shifted := newShiftedCluster(t)
	op := newOperator(t)
	op.server, op.ca = shifted.URL, shifted.ca
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t); removeReports(t, apiservers.Kube) })
	op.configure(every("30s", apiservers.Kube.Target()))
	op.start("")
	awaitPods(t, operatorNamespace, companions, 3)
	was := podUIDs(t, companions)
	// It writes every three minutes.
	for i := range 4 {
		shifted.content.Store(int64(-time.Duration(i%2) * 3 * time.Minute))
		typedReports(t, apiservers.Kube, "kms-preflight", nodeNames[0], "Healthy", time.Now().Add(time.Duration(i)*time.Second))
		op.configure(every(fmt.Sprintf("3%ds", i+1), apiservers.Kube.Target()))
		never(t, 1500*time.Millisecond, func() error {
			if now := podUIDs(t, companions); !maps.Equal(now, was) {
				return fmt.Errorf("companions are %v, were %v", now, was)
			}
			return nil
		})
	}
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
