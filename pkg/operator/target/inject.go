package target

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/sidecar"
)

// Injection is the part of a Deployment that is ours, as it is applied.
type Injection struct {
	Object  *unstructured.Unstructured
	Options sidecar.Options
}

// inject plans the reporter's container in a Deployment.
func (p *planner) inject() error {
	d := p.Deployment
	if d == nil {
		p.problem("DeploymentMissing", fmt.Sprintf("there is no Deployment %s/%s", p.Target.Namespace, p.Target.Deployment))
		return nil
	}
	if d.Name != p.Target.Deployment {
		p.eject()
		p.waits = append(p.waits, fmt.Sprintf("the reporter is taken out of Deployment %s first", d.Name))
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
		p.problem("InjectionReverted", fmt.Sprintf("the owner of Deployment %s/%s took the reporter out again, so it is left alone; use delivery Companion or External, or, when the owner leaves it in, `kubectl annotate clusterrole %s %s-`",
			d.Namespace, d.Name, render.Name(p.Target.Name), render.StateAnnotation))
		return nil
	}
	if !p.imageProven() {
		return nil
	}
	injection, err := p.injection(d, plugins)
	if err != nil {
		p.problem("SocketVolumeMissing", fmt.Sprintf("Deployment %s/%s: %v", d.Namespace, d.Name, err))
		return nil
	}
	p.plan.Inject = injection
	raw, err := json.Marshal(injection.Object.Object)
	p.state.Intended = v1alpha1.FileHash(raw)
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
	container, volumes, err := sidecar.Container(spec, o)
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
	return &Injection{Options: o, Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{sidecar.ConfigHashAnnotation: o.ConfigHash}},
			"spec":     map[string]any{"containers": []any{c}, "volumes": vs},
		}},
	}}}, nil
}

func (p *planner) sidecarOptions(d *appsv1.Deployment, plugins []v1alpha1.Plugin) (sidecar.Options, error) {
	hash, err := p.SetHash(plugins)
	o := sidecar.Options{
		Image:              p.Config.Image,
		APIServerContainer: p.Target.Container,
		Endpoints:          endpoints(plugins),
		ConfigMap:          render.ConfigMapName(p.Target.Name, plugins),
		Secret:             render.CredentialsName(p.Target.Name, p.Target.Credentials),
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
// root where nothing says otherwise.
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

// wasReverted says whether somebody else has changed what is ours in the
// Deployment since it was applied. While it is not known what became of an injection,
// since its end was not remembered, the change may be our own.
func (p *planner) wasReverted(d *appsv1.Deployment) bool {
	was := p.World.State.Injected
	return was != nil && was.Deployment == d.Name && was.UID == string(d.UID) && p.World.State.Intended == was.Sent &&
		d.Generation > was.Generation && InjectionSeen(d) != was.Seen
}

// InjectionSeen is the fingerprint of what is ours in a Deployment.
func InjectionSeen(d *appsv1.Deployment) string {
	template := &d.Spec.Template
	ours := []any{template.Annotations[sidecar.ConfigHashAnnotation]}
	for _, c := range template.Spec.Containers {
		if c.Name == sidecar.ContainerName {
			ours = append(ours, c)
		}
	}
	for _, v := range template.Spec.Volumes {
		switch v.Name {
		case sidecar.ConfigVolume, sidecar.CredentialsVolume, sidecar.NoTokenVolume:
			ours = append(ours, v)
		}
	}
	raw, err := json.Marshal(ours)
	if err != nil {
		return ""
	}
	return v1alpha1.FileHash(raw)
}

// InjectedInto is what to remember of an injection.
func InjectedInto(result *unstructured.Unstructured) (*Injected, error) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, d); err != nil {
		return nil, fmt.Errorf("read Deployment %s/%s: %w", result.GetNamespace(), result.GetName(), err)
	}
	return &Injected{Deployment: d.Name, UID: string(d.UID), Generation: d.Generation, Seen: InjectionSeen(d)}, nil
}

// eject plans to take the reporter out of a Deployment, and says whether it is
// still in one. What counts is what the Deployment shows, unless it is an old view.
func (p *planner) eject() bool {
	d, was := p.Deployment, p.World.State.Injected
	unseen := d != nil && was != nil && string(d.UID) == was.UID && d.Generation < was.Generation
	if d != nil && (p.Injected || unseen) {
		p.plan.Eject = true
		return true
	}
	p.state.Injected, p.state.Intended, p.state.Reverted, p.state.Proven = nil, "", false, ""
	return false
}

// imageProven says whether each node of the target was seen to start the image,
// and plans the pods that show it.
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
	proven := 0
	for _, node := range nodes {
		proof, err := p.ImageProof(node)
		if err != nil {
			p.problem("ImageNotProven", err.Error())
			return false
		}
		p.plan.Workloads = append(p.plan.Workloads, proof)
		switch ok, why := started(p.find(proof)); {
		case ok:
			proven++
		case why != "":
			p.problem("ImageNotProven", fmt.Sprintf("node %s cannot start %s: %s; no API server pod gets it before every node can", node, p.Config.Image, why))
		default:
			p.waits = append(p.waits, "node "+node+" is to prove that it can start the image")
		}
	}
	if proven < len(nodes) || len(nodes) == 0 {
		return false
	}
	p.state.Proven = p.Config.Image
	p.plan.Workloads = slices.DeleteFunc(p.plan.Workloads, func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/name"] == render.ProofName
	})
	return true
}

// started says whether a proof has ended well, or else why it cannot.
func started(o *unstructured.Unstructured) (ok bool, why string) {
	if o == nil {
		return false, ""
	}
	pod, err := podOf(o)
	if err != nil {
		return false, err.Error()
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return true, ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if why := stuck(s); why != "" {
			return false, why
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return false, pod.Status.Reason + ": " + pod.Status.Message
	}
	return false, ""
}

// stuck says why a container does not run, empty where it does, or may yet.
func stuck(s corev1.ContainerStatus) string {
	if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
		return fmt.Sprintf("%s, exit code %d: %s", t.Reason, t.ExitCode, t.Message)
	}
	return ""
}
