package apiserver

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// prune finds what exists of ours and is not wanted, and that nothing needs any more. Three
// rules keep an object: a pod needs it (inUse), its successor does not report yet
// (superseded), or it is the last to go (finish). While the mode changes, only companions go.
func (p *planner) prune(switching bool) {
	wanted := map[string]bool{}
	for _, o := range slices.Concat(p.plan.Apply, p.plan.Workloads, p.plan.Copied) {
		wanted[Key(o)] = true
	}
	if !switching && (p.plan.Phase != Active || !p.Target.Mode.InOwnersPods() || p.Target.OwnerInjects()) {
		p.eject()
	}
	for _, o := range p.Own {
		if wanted[Key(o)] || o.GetDeletionTimestamp() != nil || p.keeps(o) {
			continue
		}
		if p.superseded(o, switching) && !p.inUse(o) {
			p.plan.Delete = append(p.plan.Delete, o)
		}
	}
	used := switching || p.plan.Token || p.plan.Eject || p.mounted(objects.TokenName(p.Target.Name)) && !p.Deleting
	p.plan.DeleteToken = p.state.Token && !used
}

// keeps reports whether an object stays without reporters: the record, and, since KMS may be
// turned on, the Role by which the operator reads the target's Secret. The pods of a DaemonSet
// are its to delete.
func (s *Snapshot) keeps(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ClusterRole":
		return true
	case "Role":
		return !s.Deleting && s.Target.Plugins == nil
	case "Pod":
		return s.has("DaemonSet") && modeOf(o) == v1alpha1.ModeDaemonSet
	default:
		return false
	}
}

// superseded reports whether an object is no longer needed until another one takes over. A
// companion that is being replaced stays until its successor runs, and reports where the
// earlier one did; the objects of another mode until all reporters of the new one report.
func (p *planner) superseded(o *unstructured.Unstructured, switching bool) bool {
	companion := o.GetKind() == "Pod" && modeOf(o) == v1alpha1.ModeCompanionPod
	for _, w := range p.plan.Workloads {
		if companion && w.GetKind() == "Pod" && sameBeside(w, o) {
			return ended(o) || p.succeeded(p.find(w))
		}
	}
	return !switching
}

// succeeded reports whether a new companion runs, and has reported if its node has a
// report.
func (p *planner) succeeded(new *unstructured.Unstructured) bool {
	if !p.runs(new) {
		return false
	}
	reports := p.Resource != nil && slices.ContainsFunc(p.Resource.Reports, func(r operatorcr.Report) bool {
		return r.Node == nodeOf(new) && r.Form == operatorcr.FormCondition
	})
	if !reports || p.hasWritten(reporter{nodeOf(new), string(new.GetUID()), new.GetCreationTimestamp().Time}) {
		return true
	}
	p.requeue(p.Now.Add(p.Config.Probe.Interval.Duration))
	return false
}

// inUse reports whether a reporter needs an object: mounts a ConfigMap, runs as a
// ServiceAccount, or writes by a ClusterRoleBinding. What cannot be listed is in use.
func (p *planner) inUse(o *unstructured.Unstructured) bool {
	inTarget := o.GetNamespace() == p.Target.Namespace
	switch o.GetKind() {
	case "ConfigMap":
		return inTarget && (p.plan.Eject || !p.Deleting && p.mounted(o.GetName())) ||
			o.GetNamespace() == p.Namespace && p.usedByOwn(func(spec *corev1.PodSpec) bool { return mounts(spec, o.GetName()) })
	case "ServiceAccount":
		return inTarget && (p.plan.Eject || p.state.Token) ||
			o.GetNamespace() == p.Namespace && (p.has("DaemonSet") ||
				p.usedByOwn(func(spec *corev1.PodSpec) bool { return spec.ServiceAccountName == o.GetName() }))
	case "ClusterRoleBinding":
		return p.plan.Eject || p.state.Token || p.has("DaemonSet") || p.has("Pod")
	default:
		return false
	}
}

// usedByOwn reports whether a pod of the operator needs something.
func (p *planner) usedByOwn(needs func(*corev1.PodSpec) bool) bool {
	return !p.OwnKnown["Pod"] || slices.ContainsFunc(p.own("Pod"), func(o *unstructured.Unstructured) bool {
		pod := source.As[corev1.Pod](o)
		return pod != nil && needs(&pod.Spec)
	})
}

// has reports whether there are, or may be, objects of a kind.
func (s *Snapshot) has(kind string) bool { return !s.OwnKnown[kind] || len(s.own(kind)) > 0 }

// modeOf is the mode that a pod of ours belongs to.
func modeOf(pod *unstructured.Unstructured) v1alpha1.Mode {
	return v1alpha1.Mode(pod.GetLabels()[contract.ModeLabel])
}

// remove plans a target without reporters.
func (p *planner) remove(i intent) error {
	p.plan.Phase = Removing
	if p.NamespaceMissing { // and all that was in it
		p.state.Token, p.state.InTarget = false, false
	}
	p.prune(false)
	p.plan.Clean = !p.plan.Eject && !p.has("DaemonSet") && !p.has("Pod") && !p.has("ClusterRoleBinding")
	p.plan.Status = p.left()
	if p.plan.Status.Reason == "" {
		if err := p.finish(i); err != nil {
			return err
		}
	}
	if p.plan.Phase == Idle || p.plan.Phase == Removing && len(p.own("ClusterRole")) > 0 {
		if _, err := p.identity(); err != nil {
			return err
		}
	}
	if i.status.Reason == contract.NamespaceMissing {
		p.plan.Status = i.status
	}
	return nil
}

// parts are those of a removal, by kind.
var parts = []struct {
	kinds []string
	text  string
}{
	{[]string{"Pod", "DaemonSet"}, "removing the reporters"},
	{[]string{"ConfigMap"}, "removing the reporters' configuration and credentials"},
	{[]string{"ServiceAccount", "ClusterRoleBinding", "Role"}, "removing the reporters' identities"},
}

// left is the status of a removal of which something is left, zero if nothing is but what
// goes last. A kind that cannot be listed yet has an empty message.
func (p *planner) left() Status {
	for _, kind := range []string{"Pod", "DaemonSet", "ConfigMap", "ServiceAccount", "ClusterRoleBinding", "Role",
		"ClusterRole"} {
		switch why := p.OwnProblems[kind]; {
		case p.OwnKnown[kind]:
		case why != "":
			return Status{contract.SourceUnreadable, fmt.Sprintf("what is left of kind %s cannot be listed: %s", kind, why)}
		default:
			return Status{contract.Removing, ""}
		}
	}
	if p.plan.Eject {
		return Status{contract.Removing, "removing the reporter from the Deployment"}
	}
	for _, part := range parts {
		isLeft := func(o *unstructured.Unstructured) bool {
			kept := o.GetKind() == "Role" && p.keeps(o)
			return slices.Contains(part.kinds, o.GetKind()) && !kept
		}
		if slices.ContainsFunc(p.Own, isLeft) || p.state.Token && slices.Contains(part.kinds, "ConfigMap") {
			return Status{contract.Removing, part.text}
		}
	}
	return Status{}
}

// finish plans what goes last: the reports, after their writers; the object that has them;
// and the ClusterRole with the record.
func (p *planner) finish(i intent) error {
	switch {
	case i.clean && p.ReportsLeft:
		p.plan.Status = Status{contract.Removing, "removing the reports from the operator resource"}
		if p.state.Mode == "" { // there were no own reporters
			p.plan.Status.Message = ""
		}
	case i.phase == Gone && p.Resource != nil && p.ReportsTo().PerAPIServer():
		p.plan.Status = Status{contract.Removing, ""} // with the object goes the condition
		destination, err := p.Destination()
		if err != nil {
			return err
		}
		destination.SetUID(p.Resource.UID)
		p.plan.Delete = append(p.plan.Delete, destination)
	case i.phase == Gone:
		p.plan.Phase, p.plan.RemoveCondition, p.plan.Delete = Gone, true, p.own("ClusterRole")
		if p.plan.Status = i.status; len(p.plan.Delete) > 0 {
			p.plan.Status = Status{contract.Removing, "removing the last objects"}
		}
	default:
		p.plan.Phase, p.plan.RemoveCondition, p.plan.Status = Idle, i.off, i.status
		p.state = p.state.withoutDelivery()
	}
	return nil
}

// renewCAs plans the CA of objects that stay as they are. A replacement may take long, and
// what it replaces still reports.
func (p *planner) renewCAs() {
	written := map[string]bool{}
	for _, o := range slices.Concat(p.plan.Apply, p.plan.Workloads, p.plan.LiveFiles, p.plan.Copied, p.plan.Delete) {
		written[Key(o)] = true
	}
	for _, o := range p.Own {
		if written[Key(o)] || o.GetDeletionTimestamp() != nil {
			continue
		}
		if renewed, changed := withCA(o, p.CA); changed {
			p.plan.RenewCA = append(p.plan.RenewCA, renewed)
		}
	}
}

// renew plans what an Unmanaged target still gets: credentials and the CA before they
// expire, so that pausing management breaks no report.
func (p *planner) renew() {
	p.plan.Phase = Renewing
	p.plan.Token = p.state.Token
	p.renewCAs()
	p.plan.Status = Status{contract.Unmanaged,
		"managementState is Unmanaged: credentials and the CA are renewed, and nothing else is changed"}
	if p.Deleting {
		p.plan.Status.Message += "; what is left of this target is removed when it is not"
	}
	if len(p.problems) > 0 {
		p.plan.Status = worst(p.problems)
	}
}
