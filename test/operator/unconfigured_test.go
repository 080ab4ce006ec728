//go:build integration

package operator

import (
	"testing"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// An operator that starts with an invalid file reports that no configuration is in force.
func TestMissingConfigurationIsReported(t *testing.T) {
	op := newOperator(t, "--degraded-inertia=1s")
	removeEncryption(t, apiservers.Kube) // there is nothing to deliver
	op.configureRaw("this is: [garbage")
	op.start("")
	awaitClusterOperator(t, "False False True True")
	op.configure(targets(apiservers.Kube.Target()))
	awaitClusterOperator(t, "True False False True")
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
