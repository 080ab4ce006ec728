package reportercontroller

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// The expected values are the results of ResolveFenceposts in Kubernetes'
// pkg/controller/deployment/util, after the API's defaults.
func TestStrategyThatWouldEndAllPodsIsAProblem(t *testing.T) {
	rolling := func(surge, unavailable string) *appsv1.RollingUpdateDeployment {
		r := &appsv1.RollingUpdateDeployment{}
		if surge != "" {
			v := intstr.Parse(surge)
			r.MaxSurge = &v
		}
		if unavailable != "" {
			v := intstr.Parse(unavailable)
			r.MaxUnavailable = &v
		}
		return r
	}
	const noReplicas = -1
	for name, c := range map[string]struct {
		replicas    int32
		recreate    bool
		rolling     *appsv1.RollingUpdateDeployment
		unavailable int
		problem     string // a part; empty: none
	}{
		"defaults":                          {3, false, nil, 0, ""},
		"defaults, no replicas in the spec": {noReplicas, false, nil, 0, ""},
		"defaults, eight replicas":          {8, false, nil, 2, ""},
		"only maxUnavailable":               {4, false, rolling("", "4"), 4, "end 4 of 4 replicas"},
		"one of the default number":         {noReplicas, false, rolling("0", "1"), 1, "end 1 of 1 replicas"},
		"one of one":                        {1, false, rolling("0", "1"), 1, "end 1 of 1 replicas"},
		"none of one":                       {1, false, rolling("1", "0"), 0, ""},
		"both zero, one replica":            {1, false, rolling("0", "0"), 1, "end 1 of 1 replicas"},
		"99% of two rounds down to 1":       {2, false, rolling("0", "99%"), 1, ""},
		"99% of one, without: 1":            {1, false, rolling("0%", "99%"), 1, "end 1 of 1 replicas"},
		"100% of three":                     {3, false, rolling("1", "100%"), 3, "end 3 of 3 replicas"},
		"Recreate":                          {3, true, nil, 0, "Recreate ends all pods"},
		"Recreate, no replica":              {0, true, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment(1)
			if c.replicas != noReplicas {
				d.Spec.Replicas = &c.replicas
			}
			if d.Spec.Strategy.RollingUpdate = c.rolling; c.recreate {
				d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
			}
			if got := maxUnavailable(d, int(ptr.Deref(d.Spec.Replicas, 1))); got != c.unavailable {
				t.Errorf("maxUnavailable is %d, want %d", got, c.unavailable)
			}
			if got := strategyProblem(d); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
				t.Errorf("problem %q, want one with %q", got, c.problem)
			}
		})
	}
}

func TestDeploymentThatCouldLoseAllPodsIsNotInjected(t *testing.T) {
	s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")),
		func(s *Snapshot) { s.Deployment = deployment(1) })
	if plan := planOf(t, s); plan.Inject == nil {
		t.Fatalf("a Deployment with the default strategy is not injected: %+v", plan.Status)
	}
	s.Deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	plan := planOf(t, s)
	if plan.Inject != nil || plan.Eject || plan.Status.Reason != contract.DeploymentStrategy ||
		!strings.Contains(plan.Status.Message, "Deployment ns/apiserver: strategy.type Recreate") {
		t.Errorf("inject %v, eject %v, %+v", plan.Inject, plan.Eject, plan.Status)
	}
}
