// Package apiserver decides what reporters one API server gets, and delivers them.
//
// A Snapshot is the observed state, built from the sources. Make, a pure function, makes a
// Plan of it, and the Executor executes the Plan. Every Outcome is reported in the
// target's condition, the metrics, the ClusterOperator and an Event. The Controller does
// this for each target, whenever its state changes.
package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Plan is the actions for a target, in the order of its fields.
type Plan struct {
	Phase Phase

	// Anchor is the target's ClusterRole, which holds the state. Nil: there is
	// nothing to record.
	Anchor *unstructured.Unstructured
	// Apply is applied in order.
	Apply []*unstructured.Unstructured
	// Token means to create the Secret with the reporters' token, or to renew it;
	// DeleteToken, that nothing uses it any more.
	Token, DeleteToken bool
	// Workloads are applied after the objects that they mount.
	Workloads []*unstructured.Unstructured
	// LiveFiles are annotations of existing pods: the current version of their files.
	LiveFiles []*unstructured.Unstructured
	// Inject is the part of a Deployment to apply; Eject means to remove it.
	Inject *Injection
	Eject  bool
	// RenewCA are objects in which only the CA of the API server is replaced.
	RenewCA []*unstructured.Unstructured
	// Delete is deleted.
	Delete []*unstructured.Unstructured
	// Copied are ConfigMaps that no pod mounts, since pods have their content. They come
	// last: each may take as long as an unhealthy plugin.
	Copied []*unstructured.Unstructured
	// RemoveCondition removes the target's condition: there is nothing to report.
	RemoveCondition bool

	// SetsKnown means that the plugin sets are known, except for the revisions in Pending,
	// which will be known soon.
	SetsKnown bool
	Pending   map[string]bool
	// Off means that no reporter should report any more; Clean, that no own reporter can.
	Off, Clean bool

	// State is what to record.
	State  State
	Status Status
	// Requeue is when to plan again even without a change; zero: never.
	Requeue time.Time
}

// planner is the state shared by the steps of a plan.
type planner struct {
	*Snapshot
	plan     *Plan
	state    State
	pods     []apiServerPod
	pending  bool // there are pods whose plugin set will be known soon
	problems []Problem
	waits    []string
	awaits   bool // for pods of the API server
	// unplaced are endpoints whose sockets no other container reaches in any pod.
	unplaced map[string]bool
}

// Make plans. It is pure, and changes nothing of the Snapshot.
func Make(s *Snapshot) (*Plan, error) {
	p := &planner{Snapshot: s, plan: &Plan{}, state: s.State}
	if s.Problem != nil {
		return p.plan, p.wait()
	}
	p.record()
	p.findPods()
	i := p.decide()
	p.plan.Off = i.off
	if err := errors.Join(p.createDestination(i), p.secretRole(i)); err != nil {
		return nil, err
	}
	var err error
	switch i.phase {
	case Waiting:
		p.plan.Phase, p.plan.Status = i.phase, i.status
	case Renewing:
		p.renew()
	case Active:
		err = p.deliver(i)
	default:
		err = p.remove(i)
	}
	err = errors.Join(err, p.recordFirst())
	if err != nil {
		return nil, err
	}
	p.addRollupProblems()
	p.plan.State, p.plan.SetsKnown = p.state, s.setsKnown()
	if s.Encryption != nil {
		p.plan.Pending = s.Encryption.Pending
	}
	return p.plan, nil
}

// wait plans a target of which too little is known: its record, and the object for the condition.
func (p *planner) wait() error {
	p.plan.Phase, p.plan.Status = Waiting, Status(*p.Problem)
	if p.Deleting && p.State.Untouched {
		p.requeue(p.Now.Add(Starting + time.Second)) // by then a denial counts
	}
	if p.Unrecorded {
		p.state = p.identified()
	}
	p.plan.State = p.state
	err := p.recordFirst()
	if p.ResourceMissing && !p.Deleting && !p.Unmanaged && !p.Superseded {
		err = errors.Join(err, p.createDestination(intent{phase: Waiting}))
	}
	return err
}

// recordFirst plans the record of a target that has none.
func (p *planner) recordFirst() error {
	if !p.Unrecorded || p.plan.Anchor != nil {
		return nil
	}
	_, err := p.identity()
	return err
}

// record keeps what was read.
func (p *planner) record() {
	t := p.Target
	p.state = p.identified()
	p.state.LiveSince = p.liveSince()
	p.state.Live, p.state.Revisions, p.state.NotProbed = p.live(), p.revisionSets(), p.notProbed()
	if p.state.NotProbed != "" {
		p.problem(contract.ProviderNotProbed, p.state.NotProbed)
	}
	if p.State.Namespace == "" && p.Deleting && t.Mode == v1alpha1.ModeSidecar && !t.OwnerInjects() {
		p.state.Token = true // there may be one: its record was removed
	}
	if t.Plugins != nil && p.OwnKnown["Role"] && len(p.own("Role")) == 0 || t.Plugins != nil && p.State.Namespace == "" {
		p.state.Static = true
	}
	if t.Plugins == nil && !p.Deleting {
		p.state.Static = false
	}
	if e := p.Encryption; e != nil && e.Problem != "" {
		p.problem(contract.EncryptionConfigUnreadable, e.Problem)
	}
	for reason, message := range map[Reason]string{contract.PolicyMissing: p.PolicyProblem,
		contract.TLSProfileInvalid: p.TLSProblem, contract.CAUnreadable: p.CAProblem} {
		if message != "" {
			p.problem(reason, message)
		}
	}
	p.problems = append(p.problems, p.SourceProblems...)
}

// liveSince is since when the live set has had its write key. A change of anything else leaves it.
func (p *planner) liveSince() time.Time {
	first := p.State.Live == nil
	switch {
	case !p.liveKnown() || !first && WriteKey(p.live()) == WriteKey(p.State.Live):
		return p.State.LiveSince
	case p.Target.Plugins == nil && !p.Encryption.Written.IsZero():
		return p.Encryption.Written
	case first:
		return time.Time{}
	default:
		return p.Configured
	}
}

// addRollupProblems reports them in every phase in which there is a roll-up.
func (p *planner) addRollupProblems() {
	if len(p.RollupProblems) == 0 || p.plan.Off {
		return
	}
	all := slices.Clone(p.RollupProblems)
	if p.plan.Status.Reason.NeedsAction() {
		all = append(all, Problem(p.plan.Status))
	}
	p.plan.Status = worst(all)
}

func (p *planner) problem(reason Reason, message string) {
	p.problems = append(p.problems, Problem{reason, message})
}

// requeue asks for another plan at a time.
func (p *planner) requeue(at time.Time) {
	if at.After(p.Now) && (p.plan.Requeue.IsZero() || at.Before(p.plan.Requeue)) {
		p.plan.Requeue = at
	}
}

// findPods finds the running pods that have plugins, and their sockets.
func (p *planner) findPods() {
	for _, pod := range p.Pods {
		if !Alive(pod) {
			continue
		}
		if p.Snapshot.pending(&pod.Spec, pod.Labels) || p.notKnown(&pod.Spec, pod.Labels) {
			p.pending = true
			continue
		}
		plugins := p.setOf(&pod.Spec, pod.Labels)
		if len(plugins) == 0 {
			continue
		}
		a := apiServerPod{pod: pod}
		a.Node = pod.Spec.NodeName
		var err error
		if a.UID, err = objects.PodUID(pod); err != nil {
			p.problem(contract.SocketVolumeMissing, fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err))
			continue
		}
		if p.place(&a, plugins); len(a.plugins) > 0 {
			p.pods = append(p.pods, a)
		}
	}
	for _, a := range p.pods {
		for _, endpoint := range objects.Endpoints(a.plugins) {
			delete(p.unplaced, endpoint)
		}
	}
	slices.SortFunc(p.pods, func(a, b apiServerPod) int {
		return strings.Compare(a.Node+"/"+a.UID, b.Node+"/"+b.UID)
	})
}

// place finds the folders of the plugins' sockets in a pod. A plugin whose socket no other
// container reaches is a problem of that plugin alone: all others have reporters.
func (p *planner) place(a *apiServerPod, plugins []v1alpha1.Plugin) {
	if p.Target.Mode.InOwnersPods() {
		a.plugins = p.mountable(fmt.Sprintf("pod %s/%s", a.pod.Namespace, a.pod.Name), &a.pod.Spec, plugins)
		return
	}
	for _, plugin := range plugins {
		folders, err := objects.FindFolders(a.pod, p.Target.Container, []string{plugin.Endpoint}, p.KubeletRoot)
		if err != nil {
			p.cannotPlace(fmt.Sprintf("pod %s/%s", a.pod.Namespace, a.pod.Name), plugin, err)
			continue
		}
		a.plugins = append(a.plugins, plugin)
		for _, f := range folders {
			if !slices.Contains(a.Folders, f) {
				a.Folders = append(a.Folders, f)
			}
		}
	}
}

// mountable are the plugins whose sockets a container in a pod of a spec reaches. Where the
// owner of the pods adds it, that is the owner's to decide.
func (p *planner) mountable(what string, spec *corev1.PodSpec, plugins []v1alpha1.Plugin) (all []v1alpha1.Plugin) {
	for _, plugin := range plugins {
		_, err := objects.SocketMounts(spec, p.Target.Container, []string{plugin.Endpoint})
		if err != nil {
			p.cannotPlace(what, plugin, err)
		}
		if err == nil || p.Target.OwnerInjects() {
			all = append(all, plugin)
		}
	}
	return all
}

func (p *planner) cannotPlace(what string, plugin v1alpha1.Plugin, err error) {
	p.problem(contract.SocketVolumeMissing, fmt.Sprintf("%s: %v", what, err))
	if p.unplaced == nil {
		p.unplaced = map[string]bool{}
	}
	p.unplaced[plugin.Endpoint] = true
}

// setOf is the plugin set that pods of a spec use.
func (p *planner) setOf(spec *corev1.PodSpec, labels map[string]string) []v1alpha1.Plugin {
	return p.state.PluginsOf(p.Target.EncryptionConfig.Secret, spec, labels)
}

// secretRole lets the operator read the encryption configs in use.
func (p *planner) secretRole(i intent) error {
	if p.Target.Plugins != nil || p.Pods == nil || p.listing() || p.Deleting || p.NamespaceMissing || i.phase == Renewing {
		return nil
	}
	role, err := p.SecretRole(p.Revisions())
	if err != nil {
		return err
	}
	p.plan.Apply, p.state.Untouched = append(p.plan.Apply, role), false
	return nil
}

// createDestination creates the object for the reports, which nothing else creates.
func (p *planner) createDestination(i intent) error {
	if p.Resource != nil || p.Deleting || i.phase == Renewing {
		return nil
	}
	destination, err := p.Destination()
	if destination != nil {
		p.plan.Apply = append(p.plan.Apply, destination)
	}
	return err
}

// deliver plans a target with reporters.
func (p *planner) deliver(i intent) error {
	p.plan.Phase, p.state.Untouched = Active, false
	if p.state.Mode == "" {
		p.state.Mode = i.mode
	}
	// 1. Who the reporters are. Pods belong to the target's ClusterRole, so they
	// come in the sync after it.
	p.Snapshot = p.chosen(i.mode)
	p.checkEncrypted()
	p.checkAbstractSockets()
	identity, err := p.identity()
	if err != nil {
		return err
	}
	if p.Owner == nil {
		p.plan.Apply = append(p.plan.Apply, identity...)
		p.plan.Status = Status{contract.Progressing, ""}
		return nil
	}
	// 2. What they read, and what runs.
	if i.mode.InOwnersPods() {
		p.state.InTarget = true
	}
	switch i.mode {
	case v1alpha1.ModeCompanionPod:
		err = p.companions()
	case v1alpha1.ModeDaemonSet:
		err = p.daemonSet()
	case v1alpha1.ModeSidecar:
		err = p.inOwnersPods()
	default:
		err = fmt.Errorf("mode %q is not known", i.mode)
	}
	if err != nil {
		return err
	}
	p.replaceEnded()
	// 3. What was there before stays until what comes reports.
	if p.state.switching(i.mode) && !p.pending && p.reported() {
		p.state.Mode = i.mode
	}
	switching := p.state.switching(i.mode)
	if switching {
		keepSubjects(identity, p.Own)
		p.waits = append(p.waits, fmt.Sprintf("the earlier reporters (%s) stay until those of %s report", p.state.Mode,
			i.mode))
	}
	p.plan.Apply = slices.Concat(p.plan.Apply, identity)
	if switching || !p.pending {
		p.prune(switching)
	}
	if !switching && !p.pending {
		p.state.InTarget = i.mode.InOwnersPods() || p.inTarget()
	}
	p.renewCAs()
	sortByUse(p.plan.Apply)
	p.reporters()
	p.plan.Status = p.status(i.status)
	return nil
}

// sortByUse puts identities before what uses them.
func sortByUse(objects []*unstructured.Unstructured) {
	rank := map[string]int{contract.KMSHealths.Kind: -1, "Role": 0, "ServiceAccount": 1, "ClusterRoleBinding": 2,
		"ConfigMap": 3}
	slices.SortStableFunc(objects, func(a,
		b *unstructured.Unstructured) int {
		return rank[a.GetKind()] - rank[b.GetKind()]
	})
}

// chosen is the Snapshot with what was chosen for its target.
func (s *Snapshot) chosen(mode v1alpha1.Mode) *Snapshot {
	other, target := *s, *s.Target
	target.Mode = mode
	other.Target = &target
	return &other
}

// status is how a delivery stands. Problems come before what is waited for.
func (p *planner) status(done Status) Status {
	switch {
	case len(p.problems) > 0:
		return worst(p.problems)
	case p.pending:
		return Status{contract.Progressing, ""} // known in a moment
	case p.awaits:
		return Status{contract.NoPods, join(p.waits)}
	case len(p.waits) > 0:
		return Status{contract.Progressing, join(p.waits)}
	}
	message := done.Message
	switch {
	case p.Target.OwnerInjects():
		message += fmt.Sprintf("; its owner brings the credentials in Secret %s/%s", p.Target.Namespace,
			objects.CredentialsName(p.Target.Name))
	case p.plan.Token:
		message += fmt.Sprintf("; credentials in Secret %s/%s", p.Target.Namespace, objects.TokenName(p.Target.Name))
	}
	return Status{done.Reason, message}
}

// inTarget reports whether the target's namespace has, or may have, objects of the operator.
func (p *planner) inTarget() bool {
	return p.State.InTarget && (!p.OwnKnown["ConfigMap"] || !p.OwnKnown["ServiceAccount"] || p.state.Token ||
		slices.ContainsFunc(p.Own, func(o *unstructured.Unstructured) bool {
			return o.GetNamespace() == p.Target.Namespace && (o.GetKind() == "ConfigMap" || o.GetKind() == "ServiceAccount")
		}))
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
			if Key(o) != Key(d) {
				continue
			}
			had, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, subject := range had {
				if !slices.ContainsFunc(subjects, func(s any) bool { return reflect.DeepEqual(s, subject) }) {
					subjects = append(subjects, subject)
				}
			}
		}
		_ = unstructured.SetNestedSlice(d.Object, subjects, "subjects")
	}
}
