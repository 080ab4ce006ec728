package reportercontroller

import (
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func TestUnmanagedTargetGetsOnlyWhatExpires(t *testing.T) {
	injects := func(s *Snapshot) { s.CA, s.Deployment = []byte("old"), deployment(1) }
	first := planOf(t, fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")), injects))
	s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")), injects, delivered(t, first),
		func(s *Snapshot) {
			s.CA, s.Unmanaged, s.Config.Image = []byte("new"), true, "reporter:2"
			s.Live = set(2, 1)
		})
	plan := planOf(t, s)
	if plan.Status.Reason != contract.Unmanaged || len(plan.Apply)+len(plan.Delete) > 0 ||
		plan.DeleteToken || plan.Anchor != nil || plan.Off || plan.Clean {
		t.Errorf("%+v: %s applied, %s deleted, the token %t", plan.Status, names(plan.Apply), names(plan.Delete),
			plan.DeleteToken)
	}
	if !plan.Token || !first.Token {
		t.Errorf("renews the token %t, made it %t", plan.Token, first.Token)
	}
}
