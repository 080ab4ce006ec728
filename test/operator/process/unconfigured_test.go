//go:build integration

package process

import (
	"testing"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// An operator that starts with an invalid file reports that no configuration is active.
func TestMissingConfigurationIsReported(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	fixture.RemoveEncryption(t, apiservers.Kube) // there is nothing to deliver
	op.ConfigureRaw("this is: [garbage")
	op.Start("")
	fixture.AwaitClusterOperator(t, "False False True True")
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	fixture.AwaitClusterOperator(t, "True False False True")
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}
