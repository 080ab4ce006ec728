package reportercontroller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// prune finds existing objects of the operator that are neither wanted nor needed. An unwanted object stays if it
// also stays without reporters (keeps), until its successor reports (superseded), or while a reporter needs it
// (inUse). While the mode changes, only companions that have a successor are deleted.
//
// A wanted pod that has ended permanently is deleted, too: by an eviction, a graceful shutdown of its node, or a
// kubelet that did not admit it. So is a companion that reaches no plugin because the API server's pod was created
// again. The next sync creates it again.
func (p *planner) prune(switching bool) {
	for _, o := range p.Own {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		goes := (ended(o) || p.cutOff(o)) && p.Seen[o.GetUID()] >= replaceAfter
		if !p.wants(o) {
			goes = !p.keeps(o) && p.superseded(o, switching) && !p.inUse(o)
		}
		if goes {
			p.Delete = append(p.Delete, o)
		}
	}
}

// wants reports whether an object is one to apply.
func (p *planner) wants(o *unstructured.Unstructured) bool {
	key := ssa.Describe(o)
	return slices.ContainsFunc(p.Apply, func(w *unstructured.Unstructured) bool { return ssa.Describe(w) == key })
}

// keeps reports whether an object stays without reporters. The ClusterRole has the record. The Role is how the
// operator learns from the target's Secret that KMS is turned on. Pods of a DaemonSet are deleted by its controller.
func (p *planner) keeps(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ClusterRole":
		return true
	case "Role":
		return !p.Deleting && p.Target.Plugins == nil
	case "Pod":
		return len(p.own("DaemonSet")) > 0 && modeOf(o).ServesNode()
	default:
		return false
	}
}

// superseded reports whether no other object must take over before an object is deleted. A companion with a
// successor, for the same or the other pod of its node, stays until that has taken over. Objects of another mode stay
// until all reporters of the new mode have.
func (p *planner) superseded(o *unstructured.Unstructured, switching bool) bool {
	if !slices.ContainsFunc(p.Apply, func(w *unstructured.Unstructured) bool { return p.succeeds(w, o) }) {
		return !switching
	}
	goes := ended(o) || p.takenOverOn(nodeOf(o))
	if !goes {
		p.wait("the earlier reporter of node %s stays until the new one reports", nodeOf(o))
	}
	return goes
}

// inUse reports whether a reporter needs an object: it mounts the ConfigMap, runs as the ServiceAccount, or writes by
// the ClusterRoleBinding.
func (p *planner) inUse(o *unstructured.Unstructured) bool {
	beside, inTarget := o.GetNamespace() == p.Namespace, o.GetNamespace() == p.Target.Namespace
	pods, sidecars := p.own("Pod"), p.Eject || p.mounted(objects.TokenName(p.Target.Name)) && !p.Deleting
	reporters := len(pods)+len(p.own("DaemonSet")) > 0
	switch o.GetKind() {
	case "ConfigMap":
		return inTarget && (p.Eject || !p.Deleting && p.mounted(o.GetName())) ||
			beside && slices.ContainsFunc(pods, func(pod *unstructured.Unstructured) bool {
				return mounts(&informers.As[corev1.Pod](pod).Spec, o.GetName())
			})
	case "ServiceAccount":
		return inTarget && sidecars || beside && reporters
	case "ClusterRoleBinding":
		return sidecars || reporters
	default:
		return false
	}
}

// modeOf returns the mode that a managed pod belongs to.
func modeOf(pod *unstructured.Unstructured) v1alpha1.Mode {
	return v1alpha1.Mode(pod.GetLabels()[contract.ModeLabel])
}

// remove plans a target without reporters. done is its status once nothing is left of them.
func (p *planner) remove(done delivery.Status) {
	p.eject()
	if p.NamespaceMissing { // all objects in it are gone with it
		p.state.Role, p.state.InTarget = false, false
	}
	p.prune(false)
	p.Clean = !p.Eject && len(p.own("DaemonSet")) == 0 && len(p.own("Pod")) == 0 && len(p.own("ClusterRoleBinding")) == 0
	if p.Status = p.left(); p.Status.Reason == "" {
		p.last(done)
	}
	if len(ofKind(p.Delete, "ClusterRole")) == 0 && (!p.Deleting || len(p.own("ClusterRole")) > 0) {
		p.identity()
	}
	if done.Reason == contract.NamespaceMissing {
		p.Status = done
	}
}

// left returns the status while objects remain to be removed, or zero if only the last ones remain: the reports and the
// ClusterRole. While too little is known, the message is empty.
func (p *planner) left() delivery.Status {
	if p.Unlisted != nil {
		return *p.Unlisted
	}
	if p.Eject {
		return delivery.Status{Reason: contract.Removing, Message: "removing the reporter from the Deployment"}
	}
	var kinds []string
	for _, o := range p.Own {
		if o.GetKind() != "ClusterRole" && (o.GetKind() == "Pod" || !p.keeps(o)) {
			kinds = append(kinds, o.GetKind())
		}
	}
	if slices.Sort(kinds); len(kinds) > 0 {
		return delivery.Status{Reason: contract.Removing, Message: "removing what is left: " +
			strings.Join(slices.Compact(kinds), ", ")}
	}
	return delivery.Status{}
}

// last plans the end of a removal, in this order: the reports, after their writers, unless they are expected again;
// the object that has them; and the ClusterRole with the record.
func (p *planner) last(done delivery.Status) {
	switch {
	case (p.Off || p.NamespaceMissing) && p.ReportsLeft:
		p.Status = delivery.Status{Reason: contract.Removing, Message: "removing the reports from the operator resource"}
		if p.state.Mode == "" { // there were no managed reporters
			p.Status.Message = ""
		}
	case p.Deleting && p.Resource != nil && p.Target.ReportsTo().PerAPIServer():
		p.Status = delivery.Status{Reason: contract.Removing, Message: ""} // the condition is deleted with the object
		destination := p.Destination()
		destination.SetUID(p.Resource.UID)
		p.Delete = append(p.Delete, destination)
	case p.Deleting:
		if p.Delete, p.Status = p.own("ClusterRole"), done; len(p.Delete) > 0 {
			p.Status = delivery.Status{Reason: contract.Removing, Message: "removing the last objects"}
		}
	default:
		p.Status = done
		*p.state = p.state.WithoutDelivery()
	}
}
