//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// KMS is turned off by a migration, and nothing of the reporters is left. This is the last part of TestSingleNode,
// because all others need KMS to be on.
func testKMSTurnedOff(h *scenario) {
	start := time.Now()
	key := h.state.writeKey
	h.must(h.Roll(h.ctx, fixture.Roll{Encryption: apiservers.Encryption("identity", key), Plugins: []string{key}}))
	// The plugin still reads, so it is still probed.
	h.await(waitLimit, "no plugin writes", func() error {
		s := h.now(apiservers.Kube)
		return errors.Join(s.Is(contract.PluginsDegraded, "False", contract.AsExpected), s.Is(contract.WriteKeyAgreed,
			"Unknown", "NoWriteKey"))
	})
	h.must(h.WriteAnew(h.ctx))
	h.must(h.Roll(h.ctx, fixture.Roll{}))
	h.state.on = false
	h.must(h.AggregateOff(h.ctx))

	h.await(waitLimit, "nothing of ours is left in the cluster", h.nothingLeft)
	h.noLongAlarm(start)
	h.must(h.Configure(h.ctx, strings.Replace(fixture.Configuration, "probe:", "managementState: Removed\nprobe:", 1)))
	h.await(waitLimit, "with managementState Removed nothing at all is left", func() error {
		if left := h.belongings(); left != "" {
			return errors.New(left)
		}
		return nil
	})
	h.await(2*time.Minute, "ClusterOperator kms-health is healthy", h.clusterOperator)
}

// nothingLeft returns an error if anything of the reporters is in the cluster.
func (h *scenario) nothingLeft() error {
	// The Role by which the operator detects that KMS is turned on again stays, and so does each target's record.
	for line := range strings.Lines(h.belongings()) {
		right := strings.HasPrefix(line, "Role openshift-") && strings.Contains(line, "/kms-health-operator-")
		if !right && !strings.HasPrefix(line, "ClusterRole /kms-health-reporter-") {
			return errors.New(line)
		}
	}
	for _, p := range h.pods("", "") {
		for _, c := range p.Spec.Containers {
			if c.Name == reporterContainer {
				return fmt.Errorf("%s/%s has a container %s", p.Namespace, p.Name, c.Name)
			}
		}
	}
	for _, server := range apiservers.All {
		s := h.now(server)
		for kind := range s.Conditions {
			if strings.HasPrefix(kind, "KMS") {
				return fmt.Errorf("%s has condition %s", server.Resource, kind)
			}
		}
	}
	return nil
}
