package delivery

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// Injection is the part of a Deployment that is ours, as it is applied.
type Injection struct {
	Object  *unstructured.Unstructured
	Options podspec.Options
}

// inject plans the reporter's container in a Deployment.
func (p *planner) inject() error {
	d := p.Deployment
	if d == nil {
		p.problem(DeploymentMissing, fmt.Sprintf("Deployment %s/%s does not exist", p.Target.Namespace, p.Target.Deployment))
		return nil
	}
	if d.Name != p.Target.Deployment {
		p.eject()
		p.waits = append(p.waits, fmt.Sprintf("the reporter is removed from Deployment %s first", d.Name))
		return nil
	}
	template := &d.Spec.Template
	plugins := p.setOf(&template.Spec, template.Labels)
	if len(plugins) == 0 {
		p.eject()
		return nil
	}
	if p.wasReverted(d) {
		p.state.Reverted = true
	}
	if p.state.Reverted {
		p.problem(InjectionReverted, fmt.Sprintf("the owner of Deployment %s/%s removed the reporter, so it is not added again; use delivery Companion or External, or, when the owner leaves it in, `kubectl annotate clusterrole %s %s-`",
			d.Namespace, d.Name, manifests.Name(p.Target.Name), manifests.StateAnnotation))
		return nil
	}
	if !p.imageProven() {
		return nil
	}
	injection, err := p.injection(d, plugins)
	if err != nil {
		p.problem(SocketVolumeMissing, fmt.Sprintf("Deployment %s/%s: %v", d.Namespace, d.Name, err))
		return nil
	}
	p.plan.Inject = injection
	raw, err := json.Marshal(injection.Object.Object)
	p.state.Intended, p.state.Deployment = v1alpha1.FileHash(raw), d.Name
	return err
}

// injection is an apply of the container, its volumes and one annotation. With
// its UID, for an apply must never make a Deployment.
func (p *planner) injection(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (*Injection, error) {
	o, err := p.sidecarOptions(d, plugins)
	if err != nil {
		return nil, err
	}
	spec := &d.Spec.Template.Spec
	container, volumes, err := podspec.Container(spec, o)
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
	object := bareDeployment(d)
	object.Object["spec"] = map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{podspec.ConfigHashAnnotation: o.ConfigHash}},
		"spec":     map[string]any{"containers": []any{c}, "volumes": vs},
	}}
	return &Injection{Options: o, Object: object}, nil
}

// bareDeployment is an apply to a Deployment with nothing of ours.
func bareDeployment(d *appsv1.Deployment) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
	}}
}

func (p *planner) sidecarOptions(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (podspec.Options, error) {
	hash, err := p.SetHash(plugins)
	o := podspec.Options{
		Image:              p.Config.Image,
		APIServerContainer: p.Target.Container,
		Endpoints:          Endpoints(plugins),
		ConfigMap:          manifests.ConfigMapName(p.Target.Name, plugins),
		Secret:             manifests.CredentialsName(p.Target.Name, p.Target.Credentials),
		ConfigHash:         hash,
		RunAsUser:          userOf(&d.Spec.Template.Spec, p.Target.Container),
	}
	return o, err
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

// wasReverted reports whether another client has changed the injected fields of the
// Deployment since they were applied. If the result of an injection was not recorded, the
// change may be the operator's own.
func (p *planner) wasReverted(d *appsv1.Deployment) bool {
	was := p.State.Injected
	return was != nil && was.Deployment == d.Name && was.UID == string(d.UID) && p.State.Intended == was.Sent &&
		d.Generation > was.Generation && injectionSeen(d) != was.Seen
}

// injectionSeen is the fingerprint of what is ours in a Deployment.
func injectionSeen(d *appsv1.Deployment) string {
	template := &d.Spec.Template
	ours := []any{template.Annotations[podspec.ConfigHashAnnotation]}
	for _, c := range template.Spec.Containers {
		if c.Name == podspec.ContainerName {
			ours = append(ours, c)
		}
	}
	for _, v := range template.Spec.Volumes {
		switch v.Name {
		case podspec.ConfigVolume, podspec.CredentialsVolume, podspec.NoTokenVolume:
			ours = append(ours, v)
		}
	}
	raw, err := json.Marshal(ours)
	if err != nil {
		return ""
	}
	return v1alpha1.FileHash(raw)
}

// eject plans to remove the reporter from a Deployment, and reports whether it is
// still in one.
func (p *planner) eject() bool {
	if p.injected() {
		p.plan.Eject = true
		return true
	}
	p.state.notInjected()
	return false
}

// imageProven reports whether each node of the target has started the image once, and
// plans the pods that test it.
func (p *planner) imageProven() bool {
	if p.state.Proven == p.Config.Image {
		return true
	}
	var nodes []string
	for _, pod := range p.Pods {
		if Alive(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	var proofs []*unstructured.Unstructured
	proven := 0
	for _, node := range nodes {
		proof, err := p.ImageProof(node)
		if err != nil {
			p.problem(ImageNotProven, err.Error())
			return false
		}
		proofs = append(proofs, proof)
		switch status := p.statusOf(p.find(proof)); {
		case status.Phase == podspec.Completed:
			proven++
		case status.CannotStart():
			p.problem(ImageNotProven, fmt.Sprintf("node %s cannot start %s: %s; no API server pod gets it before every node can", node, p.Config.Image, status.Why))
		default:
			p.waits = append(p.waits, "waiting until node "+node+" has started the image once")
		}
	}
	if proven < len(nodes) || len(nodes) == 0 {
		p.plan.Workloads = append(p.plan.Workloads, proofs...)
		return false
	}
	p.state.Proven = p.Config.Image
	return true
}
