//go:build e2e

package e2e

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// KMS is turned on after kms-health was installed.
func testKMSTurnedOn(h *scenario) {
	start := time.Now()
	h.must(h.TurnOn(h.ctx))
	h.state.on = true
	h.noLongAlarm(start)

	others, all, err := h.Unencrypted(h.ctx, "k8s:enc:kms:v2:")
	h.must(err)
	if len(others) > 0 {
		h.t.Errorf("%d of %d Secrets and ConfigMaps are not encrypted: %q", len(others), all, others)
	}
	if all < 20 {
		h.t.Errorf("etcd has %d Secrets and ConfigMaps, must be more", all)
	}
	// After an API server's restart an informer reads again within half a minute.
	h.await(2*time.Minute, "ClusterOperator kms-health is healthy", h.clusterOperator)
}

// clusterOperator returns an error unless ClusterOperator/kms-health is healthy.
func (h *scenario) clusterOperator() error {
	o, err := h.Dynamic.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators)).Get(h.ctx, "kms-health",
		metav1.GetOptions{})
	if err != nil {
		return err
	}
	state := operatorstatus.ReadConditions(o)
	for kind, wanted := range map[string]string{"Available": "True", "Degraded": "False", "Progressing": "False"} {
		if got := state[kind]; got.Status != wanted {
			return fmt.Errorf("%s is %s (%s): %s", kind, got.Status, got.Reason, got.Message)
		}
	}
	return nil
}
