package reportercontroller

import (
	"cmp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func TestDeploymentThatCouldLoseAllPodsIsNotInjected(t *testing.T) {
	for name, c := range map[string]struct {
		replicas    int32
		unavailable string // empty: Recreate
		surge       string // empty: 25%
		problem     bool
	}{
		"the default":                {1, "25%", "", false},
		"one of one":                 {1, "1", "", true},
		"none of one":                {1, "0", "", false},
		"one of three":               {3, "1", "", false},
		"all of four":                {4, "4", "", true},
		"99% of two":                 {2, "99%", "", false}, // rounded down
		"100% of three":              {3, "100%", "", true},
		"Recreate":                   {3, "", "", true},
		"25% of one, and no surge":   {1, "25%", "0", true}, // the controller ends 1, or there would be no progress
		"25% of three, and no surge": {3, "25%", "0", false},
		"none of one, and a surge":   {1, "0", "1%", false},
		"all of no replica":          {0, "1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")))
			s.Deployment = deployment(1)
			s.Deployment.Spec.Replicas = &c.replicas
			s.Deployment.Spec.Strategy.RollingUpdate = rolling(c.unavailable)
			s.Deployment.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.Parse(cmp.Or(c.surge, "25%")))
			if c.unavailable == "" {
				s.Deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			}
			plan := ComputePlan(s)
			if is := plan.Status.Reason == contract.DeploymentStrategy; is != c.problem || (plan.Inject == nil) != is || plan.Eject {
				t.Errorf("injects %v, %+v, want a problem: %t", plan.Inject, plan.Status, c.problem)
			}
		})
	}
}
