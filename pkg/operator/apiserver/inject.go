package apiserver

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Injection is the part of a Deployment that is ours, as it is applied.
type Injection struct {
	Object *unstructured.Unstructured
	hash   string // of the container and its volumes, as sent
}

// inject plans the reporter's container in a Deployment.
func (p *planner) inject() error {
	d := p.Deployment
	if d == nil {
		p.problem(contract.DeploymentMissing, fmt.Sprintf("Deployment %s/%s does not exist", p.Target.Namespace,
			p.Target.Deployment))
		return nil
	}
	if d.Name != p.Target.Deployment {
		p.eject()
		p.waits = append(p.waits, fmt.Sprintf("the reporter is removed from Deployment %s first", d.Name))
		return nil
	}
	template := &d.Spec.Template
	if len(p.setOf(&template.Spec, template.Labels)) == 0 {
		p.eject()
		return nil
	}
	plugins := p.templatePlugins(d)
	if len(plugins) == 0 {
		return nil // what it has stays; the problems say why
	}
	if p.wasReverted(d) {
		p.state.Reverted = true
	}
	if p.state.Reverted {
		p.problem(contract.InjectionReverted,
			fmt.Sprintf("the owner of Deployment %s/%s removed the reporter, so it is not added again; use mode "+
				"CompanionPod, or leave `deployment` out and add the container to the owner's manifest, or, when the owner "+
				"leaves it in, `kubectl annotate clusterrole %s %s-`",
				d.Namespace, d.Name, contract.ReporterName(p.Target.Name), contract.StateAnnotation))
		return nil
	}
	if why := strategyProblem(d); why != "" {
		p.problem(contract.DeploymentStrategy, fmt.Sprintf("Deployment %s/%s: %s", d.Namespace, d.Name, why))
		return nil
	}
	injection, err := p.injection(d, plugins)
	if err != nil {
		p.problem(contract.SocketVolumeMissing, fmt.Sprintf("Deployment %s/%s: %v", d.Namespace, d.Name, err))
		return nil
	}
	p.state.Deployment = d.Name
	if p.HasContainer && template.Annotations[contract.PodHashAnnotation] == injection.hash {
		if was := p.state.Injected; was == nil || was.UID != string(d.UID) { // it was not recorded
			p.state.Injected = &Injected{Deployment: d.Name, UID: string(d.UID), Generation: d.Generation}
		}
		return nil
	}
	p.plan.Inject = injection
	return nil
}

// injection is an apply of the container, its volumes and two annotations. The hash of what
// is sent decides whether to apply it again: admission may change what results. With the
// Deployment's UID, for an apply must never make a Deployment.
func (p *planner) injection(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (*Injection, error) {
	template, err := p.Sidecar(field.NewPath("spec", "template", "spec"), &d.Spec.Template.Spec, plugins)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	hash := contract.FileHash(raw)
	annotated := unstructured.SetNestedField(template, hash, "metadata", "annotations", contract.PodHashAnnotation)
	object := bareDeployment(d)
	object.Object["spec"] = map[string]any{"template": template}
	return &Injection{Object: object, hash: hash}, annotated
}

// bareDeployment is an apply to a Deployment with nothing of ours.
func bareDeployment(d *appsv1.Deployment) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
	}}
}

// wasReverted reports whether another client has removed the injected container since it
// was applied: our field manager does not own it any more.
func (p *planner) wasReverted(d *appsv1.Deployment) bool {
	was := p.State.Injected
	return was != nil && was.Deployment == d.Name && was.UID == string(d.UID) && d.Generation > was.Generation &&
		!p.HasContainer
}

// eject plans to remove the reporter from a Deployment, where it is still in one.
func (p *planner) eject() {
	if p.injected() {
		p.plan.Eject = true
		return
	}
	p.state.notInjected()
}
