package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/podspec"
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
		p.problem(contract.DeploymentMissing, fmt.Sprintf("Deployment %s/%s does not exist", p.Target.Namespace, p.Target.Deployment))
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
		p.problem(contract.InjectionReverted, fmt.Sprintf("the owner of Deployment %s/%s removed the reporter, so it is not added again; use mode CompanionPod, or leave `deployment` out and add the container to the owner's manifest, or, when the owner leaves it in, `kubectl annotate clusterrole %s %s-`",
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
// is sent decides whether to apply it again: admission may change what results. With its UID, for an apply must never make a Deployment.
func (p *planner) injection(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (*Injection, error) {
	o := p.SidecarOptions(d, plugins)
	spec := &d.Spec.Template.Spec
	container, volumes, err := podspec.Container(field.NewPath("spec", "template", "spec"), spec, o)
	if err != nil {
		return nil, err
	}
	c, err := plain(container)
	if err != nil {
		return nil, err
	}
	var vs []any
	for _, v := range volumes {
		volume, err := plain(v)
		if err != nil {
			return nil, err
		}
		vs = append(vs, volume)
	}
	raw, err := json.Marshal([]any{o.ConfigHash, c, vs})
	if err != nil {
		return nil, err
	}
	hash := contract.FileHash(raw)
	object := bareDeployment(d)
	object.Object["spec"] = map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{contract.ConfigHashAnnotation: o.ConfigHash, contract.PodHashAnnotation: hash}},
		"spec":     map[string]any{"containers": []any{c}, "volumes": vs},
	}}
	return &Injection{Object: object, hash: hash}, nil
}

// bareDeployment is an apply to a Deployment with nothing of ours.
func bareDeployment(d *appsv1.Deployment) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
	}}
}

// SidecarOptions are those of the reporter's container in a Deployment.
func (s *Snapshot) SidecarOptions(d *appsv1.Deployment, plugins []v1alpha1.Plugin) podspec.Options {
	secret := objects.TokenName(s.Target.Name)
	if s.Target.OwnerInjects() {
		secret = objects.CredentialsName(s.Target.Name)
	}
	return podspec.Options{
		Image:              s.Config.Image,
		APIServerContainer: s.Target.Container,
		Endpoints:          Endpoints(plugins),
		ConfigMap:          objects.ConfigMapName(s.Target.Name, plugins),
		Secret:             secret,
		ConfigHash:         v1alpha1.PluginSetHash(plugins),
		RunAsUser:          userOf(&d.Spec.Template.Spec, s.Target.Container),
	}
}

// plain is a value as unstructured content, without its empty parts.
func plain(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	err = json.Unmarshal(raw, &content)
	return content, err
}

// userOf is the user of the API server's container, whom its sockets belong to:
// root if nothing else is configured.
func userOf(spec *corev1.PodSpec, container string) *int64 {
	root := int64(0)
	at := max(0, slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == container }))
	if at < len(spec.Containers) {
		if s := spec.Containers[at].SecurityContext; s != nil && s.RunAsUser != nil {
			return s.RunAsUser
		}
	}
	if s := spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.RunAsNonRoot != nil && *s.RunAsNonRoot) {
		return s.RunAsUser
	}
	return &root
}

// wasReverted reports whether another client has removed the injected container since it
// was applied: our field manager does not own it any more.
func (p *planner) wasReverted(d *appsv1.Deployment) bool {
	was := p.State.Injected
	return was != nil && was.Deployment == d.Name && was.UID == string(d.UID) && d.Generation > was.Generation && !p.HasContainer
}

// eject plans to remove the reporter from a Deployment, where it is still in one.
func (p *planner) eject() {
	if p.injected() {
		p.plan.Eject = true
		return
	}
	p.state.notInjected()
}
