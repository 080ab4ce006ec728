package reportercontroller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Plan is what should exist for a target, and how to get there, in the order of its fields.
type Plan struct {
	Anchor *unstructured.Unstructured // the target's ClusterRole, which holds the state; nil: there is nothing to record
	// Apply is applied in order, an object before those that use it, and before anything is deleted. Only the metadata of
	// an existing pod is written.
	Apply []*unstructured.Unstructured
	// Token means to create the Secret with the reporters' token, or to renew it. Garbage collection deletes it with their
	// ServiceAccount.
	Token bool
	// Inject is the part of a Deployment to apply; Eject means to remove it.
	Inject *unstructured.Unstructured
	Eject  bool
	Delete []*unstructured.Unstructured
	// Off means that no reporter should report any more; Clean, that no managed reporter is left that could.
	Off, Clean bool
	Served     map[string]string // the UIDs of the API server's pods that reports are about, by node

	State  delivery.State // to record
	Status delivery.Status
}

// transient is the status while too little is known. It is not reported: the last one stays.
var transient = delivery.Status{Reason: contract.Progressing, Message: ""}

// planner is the state shared by the steps of a plan.
type planner struct {
	*Snapshot // a copy, whose Target gets the chosen mode
	*Plan
	state    *delivery.State // to record
	problems []delivery.Status
	waits    []string

	pods    []apiServerPod
	pending bool // there are pods whose plugin set is not known
	plugins bool // there are pods that have plugins
	// unplaced has endpoints whose sockets no other container can reach in any pod.
	unplaced map[string]bool
}

// ComputePlan decides what to do. It is pure, and does not change the snapshot.
func ComputePlan(s *Snapshot) *Plan {
	observed, target := *s, *s.Target
	observed.Target = &target
	plan := &Plan{State: s.State, Status: transient, Served: map[string]string{}}
	p := &planner{Snapshot: &observed, Plan: plan, unplaced: map[string]bool{}}
	p.state = &p.Plan.State
	switch {
	case s.Unrecorded:
		p.identify()
		p.identity()
		return p.Plan
	case s.OtherInstallation != "":
		p.Status = s.otherInstallation()
		return p.Plan
	case s.ResourceMissing && !s.Deleting && !s.Unmanaged:
		p.apply(s.Destination())
	}
	if !s.Undecided {
		p.record()
		p.findPods()
		for _, a := range p.served() {
			p.Served[a.Node] = a.UID
		}
		p.decide()
	}
	if len(s.SourceProblems) > 0 && !p.Off { // these are reported whatever is planned, unless there is no roll-up
		p.Status = delivery.Worst(append(p.Status.IfNeedsAction(), s.SourceProblems...))
	}
	return p.Plan
}

// apply adds an object, if there is one, to those to apply.
func (p *planner) apply(o *unstructured.Unstructured) {
	if o != nil {
		p.Apply = append(p.Apply, o)
	}
}

// decide fills the plan from the snapshot alone; it uses no history.
func (p *planner) decide() {
	if p.Target.Plugins == nil && !p.Deleting && !p.NamespaceMissing && !p.Unmanaged {
		p.apply(p.SecretRole(p.Revisions())) // the operator reads the encryption configs in use by it
		if p.state.Role = true; !p.Snapshot.State.Role {
			p.identity() // the record comes first
		}
	}
	switch {
	case p.Unmanaged:
		p.renew()
	case p.Deleting:
		p.Off = true
		p.remove(delivery.Status{Reason: contract.Removed, Message: "everything is removed"})
	case p.NamespaceMissing:
		p.remove(delivery.Status{Reason: contract.NamespaceMissing,
			Message: fmt.Sprintf("namespace %s does not exist", p.Target.Namespace)})
	case p.state.Live == nil:
		p.Status = transient
	case len(p.state.Live) == 0 && p.state.NotProbed == "" && !p.pending && !p.plugins:
		p.Off = true
		p.remove(delivery.Status{Reason: contract.Off, Message: "no KMS plugin is configured, so nothing is delivered"})
	case p.has(contract.PolicyMissing) && len(p.own("ClusterRoleBinding")) == 0: // unbounded by the policy
	case len(p.state.Live) == 0 && len(p.pods) == 0 && !p.pending && p.state.NotProbed != "":
		p.remove(delivery.Worst(p.problems))
	default:
		p.choose()
	}
}

// choose decides how the target's reporters are deployed, and plans them. Only the places of the sockets decide:
// reporters of other projects in the same pods change nothing.
func (p *planner) choose() {
	mode := p.Target.Mode
	onHost := !slices.ContainsFunc(p.pods, func(a apiServerPod) bool { return !objects.OnHost(a.Folders) })
	switch {
	case mode != v1alpha1.ModeAuto:
		p.deliver(mode, contract.AsExpected, "as configured")
	case len(p.pods) == 0 && deliveries[p.state.Mode] != nil:
		p.deliver(p.state.Mode, contract.NoPods, "as before; no running pod shows where the sockets are")
	case len(p.pods) == 0 && p.pending:
		p.Status = transient
	case len(p.pods) == 0 && len(p.unplaced) > 0:
		p.remove(delivery.Worst(p.problems))
	case len(p.pods) == 0:
		p.remove(delivery.Status{Reason: contract.NoPods, Message: "no running pod shows where the sockets are yet"})
	case onHost: // also an abstract socket, which has no folder
		p.deliver(v1alpha1.ModeDaemonSet, contract.AsExpected, "the sockets are in folders of the nodes, or abstract")
	default:
		p.deliver(v1alpha1.ModeCompanionPod, contract.AsExpected, "the sockets are in volumes of the API server's pods")
	}
}

func (p *planner) problem(reason delivery.Reason, format string, values ...any) {
	p.problems = append(p.problems, delivery.Status{Reason: reason, Message: fmt.Sprintf(format, values...)})
}

func (p *planner) wait(format string, values ...any) {
	p.waits = append(p.waits, fmt.Sprintf(format, values...))
}

// identify records what identifies the target: enough to remove what is left of it.
func (p *planner) identify() {
	t := p.Target
	p.state.Installation, p.state.Namespace, p.state.Resource = p.Snapshot.Namespace, t.Namespace, t.Resource
	p.state.PodSelector = t.PodSelector
}

// record updates the state to record by what was read.
func (p *planner) record() {
	t, was := p.Target, &p.Snapshot.State
	p.identify()
	p.recordSets()
	p.state.NotLoaded = p.notLoaded()
	if d := p.Deployment; was.Namespace == "" && p.Deleting && d != nil && objects.Injected(&d.Spec.Template.Spec) {
		p.state.Injected = &delivery.Injected{Deployment: d.Name} // its record was removed
	}
	if t.Plugins != nil {
		p.state.Role = was.Role && len(p.own("Role")) > 0
	}
	if p.state.NotProbed != "" {
		p.problem(contract.ProviderNotProbed, "%s", p.state.NotProbed)
	}
}

// recordSets records the plugin sets in use: the live one, and by revision. What cannot be read stays as recorded. The
// Secret of a revision never changes. So if it was deleted, the recorded plugins stay; if none are recorded, it never
// existed.
func (p *planner) recordSets() {
	was, now := &p.Snapshot.State, p.state
	if p.Target.Plugins != nil {
		now.Live, now.Revisions, now.Mixed, now.NotProbed = p.Target.Plugins, nil, nil, ""
		return
	}
	now.Revisions, now.Mixed = map[string][]v1alpha1.Plugin{}, map[string]string{}
	ignored, known := []string(nil), true
	for _, r := range append(p.Revisions(), liveRevision) {
		set, mixed := p.Sets[r], was.Mixed[r]
		plugins, recorded := was.Revisions[r]
		if set.Known {
			mixed = set.Config.Mixed
		}
		switch {
		case r == liveRevision && set.Known:
			now.Live = set.Config.Plugins
		case r == liveRevision:
		case set.Known && (len(set.Config.Plugins) > 0 || len(plugins) == 0):
			now.Revisions[r] = set.Config.Plugins
		case recorded:
			now.Revisions[r] = plugins
		}
		if mixed != "" {
			now.Mixed[r] = mixed
		}
		ignored, known = append(ignored, set.Config.Ignored...), known && set.Known
	}
	if now.NotProbed = encryptionconfig.IgnoredText(ignored); now.NotProbed == "" && !known {
		now.NotProbed = was.NotProbed
	}
}

// mountDelay is how long after a change of a Secret a container that starts in an existing pod may still read the
// previous content. A kubelet updates a mount within about a minute; the rest is a margin.
const mountDelay = 5 * time.Minute

// notLoaded returns the IDs of containers that may use an earlier live set: they ran when its writer changed. A
// container that starts later reads the new set; in a pod that mounts the Secret, perhaps not at once: see
// mountsFormer. No ID is removed, since a container that no pod shows may run: a deleted mirror pod is created again.
// No times of different machines are compared.
func (p *planner) notLoaded() (ids []string) {
	was := &p.Snapshot.State
	changed := was.Live != nil && (delivery.Writer(p.state.Live) != delivery.Writer(was.Live) ||
		p.Target.Plugins == nil && p.state.Mixed[liveRevision] != was.Mixed[liveRevision])
	ids = slices.Clone(was.NotLoaded)
	for _, pod := range p.Pods {
		served := delivery.ContainerStatus(pod, p.Target.Container)
		if served.ContainerID != "" && (changed || p.mountsFormer(pod, &served)) {
			ids = append(ids, served.ContainerID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// mountsFormer reports whether a container may have been started with the previous content of the mounted Secret,
// within mountDelay of a change. It may if it follows a container that had not loaded the new set. It also may if
// this process saw the pod before the change, and the container after it. The process before has judged what existed
// at this process's first look.
func (p *planner) mountsFormer(pod *corev1.Pod, c *corev1.ContainerStatus) bool {
	last := c.LastTerminationState.Terminated
	follows := last != nil && slices.Contains(p.Snapshot.State.NotLoaded, last.ContainerID)
	return p.Target.Plugins == nil && p.LiveSeen < mountDelay &&
		(follows || p.Seen[pod.UID] > p.LiveSeen && p.Seen[types.UID(c.ContainerID)] < p.LiveSeen)
}

// setOf returns the plugin set that pods of a spec use: the set of their revision, else the live one. It is not known
// before the Secret of their revision was read, nor if that was never read while the live configuration has no
// plugin.
func (p *planner) setOf(spec *corev1.PodSpec, labels map[string]string) (set []v1alpha1.Plugin, known bool) {
	revision, reads := delivery.RevisionOf(p.Target.EncryptionConfig.Secret, spec, labels)
	if p.Target.Plugins == nil && !reads {
		return nil, true
	}
	if set, read := p.state.Revisions[revision]; read {
		return set, true
	}
	_, asked := p.Sets[revision]
	return p.state.Live, p.Target.Plugins != nil || revision == liveRevision ||
		len(p.state.Live) > 0 && (asked || p.Sets == nil)
}

// findPods finds the running pods that have plugins, and their sockets.
func (p *planner) findPods() {
	for _, pod := range p.Pods {
		if !delivery.Alive(pod) {
			continue
		}
		plugins, known := p.setOf(&pod.Spec, pod.Labels)
		p.pending = p.pending || !known
		if !known || len(plugins) == 0 {
			continue
		}
		p.plugins = true
		a := apiServerPod{pod: pod}
		a.Node = pod.Spec.NodeName
		a.User, a.userKnown = objects.UserOf(pod, p.Target.Container)
		var err error
		if a.UID, err = objects.PodUID(pod); err != nil {
			p.problem(contract.SocketVolumeMissing, "pod %s/%s: %v", pod.Namespace, pod.Name, err)
			continue
		}
		a.plugins, a.Folders = p.place(fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name), pod, plugins)
		if len(a.plugins) > 0 {
			p.pods = append(p.pods, a)
		}
	}
	for _, a := range p.pods {
		for _, plugin := range a.plugins {
			delete(p.unplaced, plugin.Endpoint)
		}
	}
}

// place returns the plugins whose sockets another container of a pod can reach, and, for reporters in their own pods,
// the sockets' folders. Any other plugin adds a problem, and is dropped, unless the pods' owner adds the reporter: then
// the owner decides. what is the pod in messages.
func (p *planner) place(what string, pod *corev1.Pod, plugins []v1alpha1.Plugin) (
	reachable []v1alpha1.Plugin, folders []objects.Folder) {
	for _, plugin := range plugins {
		var found []objects.Folder
		_, err := objects.SocketMounts(&pod.Spec, p.Target.Container, plugin)
		if !p.Target.Mode.InOwnersPods() {
			found, err = objects.FindFolders(pod, p.Target.Container, plugin)
		}
		if err != nil {
			p.problem(contract.SocketVolumeMissing, "%s: %v", what, err)
			p.unplaced[plugin.Endpoint] = true
		}
		if err == nil || p.Target.OwnerInjects() {
			reachable = append(reachable, plugin)
		}
		for _, f := range found {
			if !slices.Contains(folders, f) {
				folders = append(folders, f)
			}
		}
	}
	return reachable, folders
}
