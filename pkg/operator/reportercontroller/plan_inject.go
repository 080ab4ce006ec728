package reportercontroller

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// inject plans the reporter's container in a Deployment. It returns the plugins that the reporter can reach in the
// Deployment's pods.
func (p *planner) inject() (plugins []v1alpha1.Plugin) {
	d := p.Deployment
	if d == nil {
		p.eject() // forgets an injection into a Deployment that no longer exists
		p.problem(contract.DeploymentMissing, "Deployment %s/%s does not exist", p.Target.Namespace, p.Target.Deployment)
		return nil
	}
	what := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
	template := &d.Spec.Template
	set, _ := p.setOf(&template.Spec, template.Labels)
	plugins, _ = p.place(what, &corev1.Pod{Spec: template.Spec}, set)
	switch {
	case d.Name != p.Target.Deployment:
		p.eject()
		p.wait("the reporter is being removed from Deployment %s first", d.Name)
		return plugins
	case len(set) == 0:
		p.eject()
		return nil
	case len(plugins) == 0:
		return nil // the Deployment stays unchanged; the problems say why
	}
	// Reverted: another client has removed the container. A cached Deployment may be older than the injection.
	was, has := p.Snapshot.State.Injected, objects.Injected(&template.Spec)
	seen := was != nil && was.Deployment == d.Name && was.UID == string(d.UID) // it is the injected one
	p.state.Reverted = p.state.Reverted || seen && d.Generation > was.Generation && !has
	if p.state.Reverted {
		p.problem(contract.InjectionReverted, "the owner of %s removed the reporter, so it is not added again; use mode "+
			"CompanionPod, or leave `deployment` out and add the container to the owner's manifest, or, if the owner now "+
			"keeps it, run `kubectl annotate clusterrole %s %s-`",
			what, contract.ReporterName(p.Target.Name), contract.StateAnnotation)
		return plugins
	}
	if mayEndAll(d) {
		p.problem(contract.DeploymentStrategy, "a rollout of %s may end all its pods before a new one is ready: set "+
			"strategy.type to RollingUpdate and strategy.rollingUpdate.maxUnavailable below spec.replicas, or use mode "+
			"CompanionPod", what)
		return plugins
	}
	injection, hash, err := p.injection(d, plugins)
	if err != nil {
		p.problem(contract.SocketVolumeMissing, "%s: %v", what, err)
		return plugins
	}
	switch {
	case !has || template.Annotations[contract.PodHashAnnotation] != hash:
		p.Inject = injection
		if p.state.Injected == nil {
			p.state.Injected = &delivery.Injected{Deployment: d.Name}
		}
	case !seen: // it was not recorded
		p.state.Injected = &delivery.Injected{Deployment: d.Name, UID: string(d.UID), Generation: d.Generation}
	}
	return plugins
}

// injection returns an apply of the container, its volumes and two annotations. The hash of what is sent decides
// whether to apply it again: admission may change the result. It has the Deployment's UID, since an apply must never
// create a Deployment.
func (p *planner) injection(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (
	o *unstructured.Unstructured, hash string, err error) {
	template, err := p.Sidecar(&d.Spec.Template.Spec, plugins)
	if err != nil {
		return nil, "", err
	}
	hash = contract.FileHash([]byte(contract.Marshal(template)))
	o = bareDeployment(d)
	o.Object["spec"] = map[string]any{"template": template}
	return o, hash, unstructured.SetNestedField(template, hash, "metadata", "annotations", contract.PodHashAnnotation)
}

// bareDeployment returns an apply without any field of the operator's, which removes them all.
func bareDeployment(d *appsv1.Deployment) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
	}}
}

// eject plans to remove the reporter from the Deployment if it may be there: an injection is recorded before it is
// made.
func (p *planner) eject() {
	if p.Eject = p.Deployment != nil && p.state.Injected != nil; !p.Eject {
		p.state.NotInjected()
	}
}

// mayEndAll reports whether a rollout of a Deployment may end all its pods before a new one is ready. With an image
// that cannot be pulled, the API server would then be gone. Any other rollout stops at the first new pod that does not
// become ready. Without a surge at least one pod is ended, whatever a percentage is rounded to.
func mayEndAll(d *appsv1.Deployment) bool {
	replicas, rolling := int(ptr.Deref(d.Spec.Replicas, 1)), d.Spec.Strategy.RollingUpdate
	if rolling == nil { // the type is Recreate
		return true
	}
	unavailable, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, replicas, false)
	if surge, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, replicas, true); surge == 0 {
		unavailable = max(1, unavailable)
	}
	return replicas > 0 && unavailable >= replicas
}
