package apiserver

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// strategyProblem is why a rollout of a Deployment could end all its pods before a new one
// is ready: with an image that cannot be pulled, its API server would be gone. A rolling
// update that keeps a pod stops at the first one that does not become ready.
func strategyProblem(d *appsv1.Deployment) string {
	replicas := replicasOf(d)
	const fix = "set strategy.type to RollingUpdate and strategy.rollingUpdate.maxUnavailable below spec.replicas, " +
		"or use mode " +
		string(v1alpha1.ModeCompanionPod)
	switch unavailable, err := maxUnavailable(d); {
	case replicas == 0:
		return "" // there is nothing that a rollout could end
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return "strategy.type Recreate ends all pods before a new one is ready: " + fix
	case err != nil:
		return fmt.Sprintf("strategy.rollingUpdate: %v", err)
	case unavailable >= replicas:
		return fmt.Sprintf("strategy.rollingUpdate lets a rollout end %d of %d replicas before a new one is ready: %s",
			unavailable, replicas, fix)
	default:
		return ""
	}
}

// replicasOf are a Deployment's, with the API's default.
func replicasOf(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

// maxUnavailable is how many pods a rolling update may end before new ones are ready, as the
// Deployment controller computes it: the percentage of maxUnavailable is rounded down, that
// of maxSurge up, and where both are 0, maxUnavailable is 1. The default of both is 25%.
func maxUnavailable(d *appsv1.Deployment) (int, error) {
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		surge, unavailable = *intstr.ValueOrDefault(r.MaxSurge, surge), *intstr.ValueOrDefault(r.MaxUnavailable, unavailable)
	}
	up, err := intstr.GetScaledValueFromIntOrPercent(&surge, replicasOf(d), true)
	if err != nil {
		return 0, fmt.Errorf("maxSurge: %w", err)
	}
	down, err := intstr.GetScaledValueFromIntOrPercent(&unavailable, replicasOf(d), false)
	if err != nil {
		return 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	if up == 0 && down == 0 {
		down = 1
	}
	return down, nil
}
