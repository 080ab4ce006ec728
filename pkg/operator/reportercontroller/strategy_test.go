package reportercontroller

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// The numbers are the results of ResolveFenceposts in Kubernetes' pkg/controller/deployment/util.
func TestDeploymentThatCouldLoseAllPodsIsNotInjected(t *testing.T) {
	for name, c := range map[string]struct {
		replicas           int32
		surge, unavailable string // empty: Recreate
		problem            string // a part; empty: none
	}{
		"defaults":                    {3, "25%", "25%", ""},
		"one of one":                  {1, "0", "1", "end 1 of 1 replicas"},
		"none of one":                 {1, "1", "0", ""},
		"all of four":                 {4, "25%", "4", "end 4 of 4 replicas"},
		"both zero, one replica":      {1, "0", "0", "end 1 of 1 replicas"},
		"99% of two rounds down to 1": {2, "0", "99%", ""},
		"99% of one, without: 1":      {1, "0%", "99%", "end 1 of 1 replicas"},
		"1% of one rounds up to 1":    {1, "1%", "99%", ""},
		"100% of three":               {3, "1", "100%", "end 3 of 3 replicas"},
		"Recreate":                    {3, "", "", "Deployment ns/apiserver: its strategy lets a rollout end 3 of 3"},
		"Recreate, no replica":        {0, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")))
			s.Deployment = deployment(1)
			s.Deployment.Spec.Replicas = &c.replicas
			s.Deployment.Spec.Strategy.RollingUpdate = rolling(c.surge, c.unavailable)
			if c.surge == "" {
				s.Deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			}
			plan := ComputePlan(s)
			if is := plan.Status.Reason == contract.DeploymentStrategy; is != (c.problem != "") || (plan.Inject == nil) != is ||
				!strings.Contains(plan.Status.Message, c.problem) || plan.Eject {
				t.Errorf("injects %v, %+v, want a problem with %q", plan.Inject, plan.Status, c.problem)
			}
		})
	}
}
