// Package target decides what one API server gets, as a function from what is
// there to what is to be done, and does it.
package target

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// Plan is what is to be done for a target, in the order of its fields.
type Plan struct {
	// Anchor is the target's ClusterRole, which holds the state. Nil: there is
	// nothing to remember.
	Anchor *unstructured.Unstructured
	// Apply is brought about in order.
	Apply []*unstructured.Unstructured
	// Credentials are made where the operator makes them.
	Credentials *CredentialsWanted
	// Workloads are what runs. They come after what they mount.
	Workloads []*unstructured.Unstructured
	// Inject is the part of a Deployment that is ours; Eject, that it holds none.
	Inject *Injection
	Eject  bool
	// Delete goes.
	Delete []*unstructured.Unstructured
	// DeleteSecrets are names of credentials that nothing uses any more, in the
	// target's namespace.
	DeleteSecrets []string

	// Known says that the plugin sets are known, but for the revisions in Pending,
	// which will be in a moment.
	Known   bool
	Pending map[string]bool
	// Off says that nobody is to report any more; Clean, that nobody of ours can.
	Off, Clean bool

	// State is what to remember.
	State  State
	Status Status
	// Gone says that nothing of the target is left, or that what is left goes now:
	// its condition goes too, and first.
	Gone bool
}

// CredentialsWanted is a Secret with a reporter's credentials.
type CredentialsWanted struct {
	Kind      v1alpha1.Credentials
	Namespace string
	Name      string
}

// Status of a delivery, as its condition tells it.
type Status struct {
	Status  string // True, False or Unknown
	Reason  string
	Message string
}

// planner carries what the steps of a plan share.
type planner struct {
	*World
	plan     *Plan
	state    State
	sites    []site
	pendings bool     // there are pods whose plugin set will be known in a moment
	problems []string // reason: message
	waits    []string
}

// Make plans. It is pure.
func Make(w *World) (*Plan, error) {
	p := &planner{World: w, plan: &Plan{}, state: w.State}
	p.remember()
	p.findSites()
	if err := p.decide(); err != nil {
		return nil, err
	}
	p.plan.State, p.plan.Known = p.state, p.known()
	if p.Encryption != nil {
		p.plan.Pending = p.Encryption.Pending
	}
	return p.plan, nil
}

// remember keeps what was read.
func (p *planner) remember() {
	t := p.Target
	p.state.Namespace, p.state.Resource, p.state.PodSelector, p.state.Container = t.Namespace, t.Resource, t.PodSelector, t.Container
	p.state.Static = t.Plugins != nil || p.Going && p.state.Static
	if p.Encryption != nil && p.Encryption.Problem != "" {
		p.problem("EncryptionConfigUnreadable", p.Encryption.Problem)
	}
	p.state.Live = p.live()
	p.state.Revisions = nil
	if t.Plugins != nil {
		return
	}
	for _, r := range p.Revisions() {
		set, ok := p.World.State.Revisions[r]
		if p.Encryption != nil {
			if c, read := p.Encryption.Revisions[r]; read {
				set, ok = c.Plugins, true
			}
		}
		if !ok {
			continue
		}
		if p.state.Revisions == nil {
			p.state.Revisions = map[string][]v1alpha1.Plugin{}
		}
		p.state.Revisions[r] = set
	}
}

func (p *planner) problem(reason, message string) {
	p.problems = append(p.problems, reason+": "+message)
}

// findSites finds the running pods that have plugins, and their sockets.
func (p *planner) findSites() {
	for _, pod := range p.Pods {
		if !Alive(pod) {
			continue
		}
		if p.pending(&pod.Spec, pod.Labels) {
			p.pendings = true
			continue
		}
		plugins := p.setOf(&pod.Spec, pod.Labels)
		if len(plugins) == 0 {
			continue
		}
		s := site{pod: pod, plugins: plugins}
		s.Node = pod.Spec.NodeName
		var err error
		if s.UID, err = sockets.UID(pod); err == nil {
			s.Folders, err = sockets.Find(pod, p.Target.Container, endpoints(plugins), p.KubeletRoot)
		}
		if err != nil {
			p.problem("SocketVolumeMissing", fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err))
			continue
		}
		p.sites = append(p.sites, s)
	}
	slices.SortFunc(p.sites, func(a, b site) int {
		return strings.Compare(a.Node+"/"+a.UID, b.Node+"/"+b.UID)
	})
}

// off says whether there is nothing to probe: neither the live configuration nor
// a deployed one names a plugin.
func (p *planner) off() bool {
	if p.Going {
		return true
	}
	if len(p.live()) > 0 || p.pendings {
		return false
	}
	for _, pod := range p.Pods {
		if Alive(pod) && len(p.setOf(&pod.Spec, pod.Labels)) > 0 {
			return false
		}
	}
	return true
}

func (p *planner) decide() error {
	if p.NamespaceMissing && !p.Going {
		if err := p.takeBack(false); err != nil {
			return err
		}
		p.plan.Gone = false
		p.plan.Status = Status{"Unknown", "NamespaceMissing", fmt.Sprintf("there is no namespace %s", p.Target.Namespace)}
		return nil
	}
	if !p.Going {
		if err := p.secretRole(); err != nil {
			return err
		}
		if p.Pods == nil || !p.known() {
			p.plan.Status = Status{"Unknown", ReasonAwaitingSources, p.unknownSource()}
			return nil
		}
	}
	if p.off() {
		p.plan.Off = true
		return p.takeBack(false)
	}
	choice := p.choose(p.sites)
	if choice.Delivery == "" && p.pendings {
		p.plan.Status = Status{"Unknown", ReasonAwaitingSources, ""}
		return nil
	}
	if choice.Delivery == "" {
		if err := p.takeBack(true); err != nil {
			return err
		}
		if p.plan.Clean {
			p.state = State{
				Namespace: p.state.Namespace, Resource: p.state.Resource, PodSelector: p.state.PodSelector, Container: p.state.Container,
				Static: p.state.Static, Live: p.state.Live, Revisions: p.state.Revisions,
			}
		}
		if len(p.plan.Delete) == 0 {
			p.plan.Status = Status{"True", choice.Reason, choice.Message}
		}
		return nil
	}
	return p.deliver(choice)
}

// unknownSource says what is not known, and why where that is more than that
// nobody has told yet.
func (p *planner) unknownSource() string {
	switch {
	case p.Trouble != "":
		return p.Trouble
	case p.Encryption != nil && p.Encryption.Problem != "":
		return p.Encryption.Problem
	default:
		return ""
	}
}

// setOf is the plugin set that pods of a spec use.
func (p *planner) setOf(spec *corev1.PodSpec, labels map[string]string) []v1alpha1.Plugin {
	return p.state.PluginsOf(p.Target.EncryptionConfig.Secret, spec, labels)
}

// secretRole lets the operator read the encryption configs in use.
func (p *planner) secretRole() error {
	if p.Target.Plugins != nil || p.Pods == nil {
		return nil
	}
	role, err := p.SecretRole(p.Revisions())
	if err != nil {
		return err
	}
	p.plan.Apply = append(p.plan.Apply, role)
	return nil
}

// deliver plans a target with reporters.
func (p *planner) deliver(choice Choice) error {
	if p.state.Delivery == "" {
		p.state.Delivery, p.state.Credentials = choice.Delivery, p.Target.Credentials
	}
	// 1. Who the reporters are. Pods belong to the target's ClusterRole, so they
	// come in the pass after it.
	wanted := *p.Target
	wanted.Delivery = choice.Delivery
	p.Target = &wanted
	identity, err := p.identity()
	if err != nil {
		return err
	}
	if p.Owner == nil && !p.Offline {
		p.plan.Apply = append(p.plan.Apply, identity...)
		p.plan.Status = Status{"Unknown", ReasonAwaitingSources, ""}
		return nil
	}
	// 2. What they read, and what runs.
	if choice.Delivery.InOwnersPods() {
		p.state.InTarget = true
	}
	switch choice.Delivery {
	case v1alpha1.DeliveryCompanion:
		err = p.companions()
	case v1alpha1.DeliveryDaemonSet:
		err = p.daemonSet()
	case v1alpha1.DeliveryDeployment, v1alpha1.DeliveryExternal:
		err = p.inOwnersPods(choice.Delivery)
	}
	if err != nil {
		return err
	}
	// 3. What was there before stays until what comes reports.
	switching := p.state.Delivery != choice.Delivery || p.state.Credentials != p.Target.Credentials
	if switching && !p.pendings && p.reported() {
		p.state.Delivery, p.state.Credentials, switching = choice.Delivery, p.Target.Credentials, false
	}
	switch {
	case switching:
		keepSubjects(identity, p.Own)
		p.waits = append(p.waits, fmt.Sprintf("the reporters of before (%s, %s) stay until those of %s report", p.state.Delivery, p.state.Credentials, choice.Delivery))
	case !p.pendings:
		p.prune()
		p.state.InTarget = choice.Delivery.InOwnersPods() || p.inTarget()
	}
	p.plan.Apply = slices.Concat(p.plan.Apply, identity)
	p.order()
	if !p.Offline {
		p.reporters()
	}
	p.plan.Status = p.status(choice)
	return nil
}

// inTarget says whether something of ours is, or may be, in the target's namespace.
func (p *planner) inTarget() bool {
	return p.World.State.InTarget && (!p.OwnKnown["ConfigMap"] || !p.OwnKnown["ServiceAccount"] || len(p.state.Secrets) > 0 ||
		slices.ContainsFunc(p.Own, func(o *unstructured.Unstructured) bool {
			return o.GetNamespace() == p.Target.Namespace && (o.GetKind() == "ConfigMap" || o.GetKind() == "ServiceAccount")
		}))
}

// order puts identities before what uses them.
func (p *planner) order() {
	rank := map[string]int{"Role": 0, "ServiceAccount": 1, "ClusterRoleBinding": 2, "ConfigMap": 3}
	slices.SortStableFunc(p.plan.Apply, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })
}

// identity is the ServiceAccount and its binding; the ClusterRole becomes the
// anchor.
func (p *planner) identity() ([]*unstructured.Unstructured, error) {
	all, err := p.Identity()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		if o.GetKind() != "ClusterRole" {
			return false
		}
		p.plan.Anchor = o
		return true
	}), nil
}

// keepSubjects leaves the right with those that have it.
func keepSubjects(desired, own []*unstructured.Unstructured) {
	for _, d := range desired {
		if d.GetKind() != "ClusterRoleBinding" {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(d.Object, "subjects")
		for _, o := range own {
			if o.GetKind() != d.GetKind() || o.GetName() != d.GetName() {
				continue
			}
			had, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, subject := range had {
				if !slices.ContainsFunc(subjects, func(s any) bool { return sameSubject(s, subject) }) {
					subjects = append(subjects, subject)
				}
			}
		}
		_ = unstructured.SetNestedSlice(d.Object, subjects, "subjects")
	}
}

func sameSubject(a, b any) bool {
	left, right := a.(map[string]any), b.(map[string]any)
	for _, field := range []string{"kind", "name", "namespace"} {
		l, _ := left[field].(string)
		r, _ := right[field].(string)
		if l != r {
			return false
		}
	}
	return true
}
