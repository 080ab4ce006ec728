//go:build integration

package operator

import (
	"testing"

	"github.com/kms-health/kms-health/test/apiservers"
)

// An operator that starts with a file of mistakes has nothing in force, and says so.
func TestNoConfigurationIsTold(t *testing.T) {
	h := newHouse(t, "--degraded-inertia=1s")
	h.configureRaw("this is: [garbage")
	h.start("")
	awaitClusterOperator(t, "False False True True")
	h.configure(targets(apiservers.Kube.Target()))
	awaitClusterOperator(t, "True False False True")
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}
