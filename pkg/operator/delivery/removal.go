package delivery

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// prune finds what no longer belongs to a target with reporters.
func (p *planner) prune() {
	wanted := map[string]bool{}
	for _, o := range slices.Concat(p.plan.Apply, p.plan.Workloads, p.plan.Copied) {
		wanted[apply.Key(o)] = true
	}
	for _, o := range p.Own {
		if wanted[apply.Key(o)] || o.GetDeletionTimestamp() != nil {
			continue
		}
		goes := false
		switch o.GetKind() {
		case "Pod":
			goes = p.podGoes(o)
		case "DaemonSet":
			goes = true
		case "Role": // the target has a plugin set of its own now
			goes = p.Target.Plugins != nil
		case "ConfigMap":
			goes = !p.inUse(o)
		case "ServiceAccount": // of another namespace: the delivery has changed
			goes = o.GetNamespace() != p.ReportersNamespace(p.Target.Delivery)
		}
		if goes {
			p.plan.Delete = append(p.plan.Delete, o)
		}
	}
	if !p.Target.Delivery.InOwnersPods() || p.Target.Delivery == v1alpha1.DeliveryExternal {
		p.eject()
	}
	p.pruneSecrets()
}

// podGoes reports whether an own pod that is no longer wanted may be deleted now. A
// companion that is being replaced stays until its successor runs, and reports where the
// earlier one did.
func (p *planner) podGoes(o *unstructured.Unstructured) bool {
	switch v1alpha1.Delivery(o.GetLabels()[manifests.DeliveryLabel]) {
	case v1alpha1.DeliveryDaemonSet:
		return false // the DaemonSet's
	case v1alpha1.DeliveryCompanion:
		if slices.ContainsFunc(p.later, func(w *unstructured.Unstructured) bool { return sameBeside(w, o) }) {
			return ended(o, o)
		}
		for _, w := range p.plan.Workloads {
			if w.GetKind() == "Pod" && sameBeside(w, o) {
				return ended(o, w) || p.succeeded(p.find(w))
			}
		}
	}
	return true
}

// succeeded reports whether a new companion runs, and has reported if its node has a
// report that shows which reporter wrote it. The typed form does not: a condition that is
// there is the earlier reporter's.
func (p *planner) succeeded(new *unstructured.Unstructured) bool {
	if !p.runs(new) {
		return false
	}
	if p.Resource == nil || p.Config.Format == v1alpha1.FormatHealthReports || !slices.ContainsFunc(p.Resource.Reports, func(r operatorcr.Report) bool {
		return r.Node == nodeOf(new) && r.Form == operatorcr.FormCondition
	}) {
		return true
	}
	if beganSince(p.Resource, nodeOf(new), new.GetCreationTimestamp().Time) {
		return true
	}
	p.requeue(p.Now.Add(p.Config.Probe.Interval.Duration))
	return false
}

// pruneReplaced finds companions whose successors report, while another delivery is still
// being replaced by them.
func (p *planner) pruneReplaced() {
	for _, o := range p.own("Pod") {
		succeeds := func(w *unstructured.Unstructured) bool {
			return w.GetKind() == "Pod" && sameBeside(w, o) && w.GetName() != o.GetName()
		}
		if o.GetDeletionTimestamp() == nil && slices.ContainsFunc(p.plan.Workloads, succeeds) && p.podGoes(o) {
			p.plan.Delete = append(p.plan.Delete, o)
		}
	}
}

// inUse reports whether a pod still mounts a ConfigMap. Those of the target's namespace and
// of the operator's have the same names.
func (p *planner) inUse(configMap *unstructured.Unstructured) bool {
	name, namespace := configMap.GetName(), configMap.GetNamespace()
	return namespace == p.Target.Namespace && p.mounted(name) ||
		namespace == p.Namespace && slices.ContainsFunc(p.own("Pod"), func(o *unstructured.Unstructured) bool {
			pod := source.As[corev1.Pod](o)
			return pod != nil && mounts(&pod.Spec, name)
		})
}

// pruneSecrets names the credentials that nothing uses any more.
func (p *planner) pruneSecrets() {
	for _, kind := range secretKinds {
		name := manifests.CredentialsName(p.Target.Name, kind)
		wanted := slices.ContainsFunc(p.plan.Credentials, func(c CredentialsWanted) bool { return c.Name == name })
		if !wanted && (!p.mounted(name) || p.Deleting) && slices.Contains(p.state.Secrets, name) {
			p.plan.DeleteSecrets = append(p.plan.DeleteSecrets, name)
		}
	}
}

// secretKinds are the credentials that the operator keeps in Secrets.
var secretKinds = []v1alpha1.Credentials{v1alpha1.CredentialsMintedToken, v1alpha1.CredentialsClientCertificate, v1alpha1.CredentialsLegacyToken}

// remove plans a target without reporters: the next step of its removal.
func (p *planner) remove(i intent) error {
	if p.Offline { // there is nothing to remove
		p.plan.Phase, p.plan.Status = i.phase, i.status
		return nil
	}
	if p.NamespaceMissing { // and all that was in it
		p.state.Secrets, p.state.InTarget = nil, false
	}
	phase, unknown := p.removalPhase(i)
	p.plan.Phase = phase
	p.plan.Clean = phase == Idle || phase == RemovingReports || phase == RemovingDestination || phase == Gone
	if phase == Idle || len(p.own("ClusterRole")) > 0 {
		if _, err := p.identity(); err != nil {
			return err
		}
	}
	p.plan.Status = Status{Removing, removingText[phase]}
	switch {
	case unknown != "":
		p.plan.Status.Message = "" // known soon
		if why := p.OwnProblems[unknown]; why != "" {
			p.plan.Status = Status{SourceUnreadable, fmt.Sprintf("what is left of kind %s cannot be listed: %s", unknown, why)}
		}
		return nil
	case phase == RemovingWorkloads && p.eject():
		p.plan.Status.Message = "removing the reporter from the Deployment"
	case phase == Idle:
		p.state = p.state.withoutDelivery()
		p.plan.Status, p.plan.RemoveCondition = i.status, i.off
	case phase == RemovingReports && p.state.Delivery == "": // there were no own reporters
		p.plan.Status.Message = ""
	case phase == RemovingDestination:
		p.plan.Status.Message = "" // with the object goes the condition
		destination, err := p.Destination()
		if err != nil {
			return err
		}
		destination.SetUID(p.Resource.UID)
		p.plan.Delete = append(p.plan.Delete, destination)
	case phase == Gone:
		p.plan.Delete, p.plan.Anchor, p.plan.RemoveCondition = p.own("ClusterRole"), nil, true
		if len(p.plan.Delete) == 0 {
			p.plan.Status = i.status
		}
	default:
		p.deleteOf(phase)
	}
	if i.status.Reason == TargetNamespaceMissing {
		p.plan.Status = i.status
	}
	return nil
}

// removingText is what a removal is doing.
var removingText = map[Phase]string{
	RemovingWorkloads:  "removing the reporters",
	RemovingMounts:     "removing the reporters' configuration and credentials",
	RemovingIdentities: "removing the reporters' identities",
	RemovingReports:    "removing the reports from the operator resource",
	Gone:               "removing the last objects",
}

// deleteOf deletes what goes in one phase of a removal.
func (p *planner) deleteOf(phase Phase) {
	for _, r := range removal {
		if r.phase != phase {
			continue
		}
		for _, o := range p.Own {
			inUse := phase == RemovingMounts && !p.Deleting && p.inUse(o)
			if slices.Contains(r.kinds, o.GetKind()) && !p.keeps(o) && !inUse {
				p.plan.Delete = append(p.plan.Delete, o)
			}
		}
	}
	if phase == RemovingMounts {
		p.pruneSecrets()
	}
}

// renewCAs plans the CA of objects that stay as they are. A replacement may take long, and
// what it replaces still reports.
func (p *planner) renewCAs() {
	written := map[string]bool{}
	for _, o := range slices.Concat(p.plan.Apply, p.plan.Workloads, p.plan.LiveFiles, p.plan.Copied, p.plan.Delete) {
		written[apply.Key(o)] = true
	}
	for _, o := range p.Own {
		if written[apply.Key(o)] || o.GetDeletionTimestamp() != nil {
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
	for _, kind := range secretKinds {
		if name := manifests.CredentialsName(p.Target.Name, kind); slices.Contains(p.state.Secrets, name) {
			p.plan.Credentials = append(p.plan.Credentials, CredentialsWanted{kind, p.Target.Namespace, name})
		}
	}
	p.renewCAs()
	p.plan.Status = Status{Unmanaged, "managementState is Unmanaged: credentials and the CA are renewed, and nothing else is changed"}
	if p.Deleting {
		p.plan.Status.Message += "; what is left of this target is removed when it is not"
	}
	if len(p.problems) > 0 {
		p.plan.Status = worst(p.problems)
	}
}
