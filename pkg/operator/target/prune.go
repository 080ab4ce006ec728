package target

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/sidecar"
)

// stages of taking back: what runs, what it mounts, who it is, and last the
// ClusterRole, which remembers that there is something to take back.
var stages = []map[string]bool{
	{"Pod": true, "DaemonSet": true},
	{"ConfigMap": true},
	{"ServiceAccount": true, "ClusterRoleBinding": true, "Role": true},
	{"ClusterRole": true},
}

// mountedStage is the stage of what pods mount.
const mountedStage = 1

// prune finds what no longer belongs to a target with reporters.
func (p *planner) prune() {
	wanted := map[string]bool{}
	for _, o := range slices.Concat(p.plan.Apply, p.plan.Workloads) {
		wanted[id(o)] = true
	}
	for _, o := range p.Own {
		if wanted[id(o)] || o.GetDeletionTimestamp() != nil {
			continue
		}
		switch o.GetKind() {
		case "Pod":
			if p.podGoes(o) {
				p.plan.Delete = append(p.plan.Delete, o)
			}
		case "DaemonSet":
			p.plan.Delete = append(p.plan.Delete, o)
		case "ConfigMap":
			if !p.mounted(o.GetName()) && !p.mountedByOwn(o.GetName()) {
				p.plan.Delete = append(p.plan.Delete, o)
			}
		case "ServiceAccount": // of another namespace: the delivery has changed
			if o.GetNamespace() != p.ReportersNamespace(p.Target.Delivery) {
				p.plan.Delete = append(p.plan.Delete, o)
			}
		}
	}
	if !p.Target.Delivery.InOwnersPods() || p.Target.Delivery == v1alpha1.DeliveryExternal {
		p.eject()
	}
	p.pruneSecrets()
}

func id(o *unstructured.Unstructured) string {
	return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// podGoes says whether a pod of ours that nobody wants any more may go now. A
// companion that another replaces stays until that one runs.
func (p *planner) podGoes(o *unstructured.Unstructured) bool {
	switch v1alpha1.Delivery(o.GetLabels()[render.DeliveryLabel]) {
	case v1alpha1.DeliveryDaemonSet:
		return false // the DaemonSet's
	case v1alpha1.DeliveryCompanion:
		for _, w := range p.plan.Workloads {
			if w.GetKind() == "Pod" && w.GetAnnotations()[render.BesideAnnotation] == o.GetAnnotations()[render.BesideAnnotation] {
				return running(p.find(w))
			}
		}
	}
	return true
}

func nodeOf(o *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node
}

// running says whether a pod's containers all run.
func running(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	pod, err := podOf(o)
	if err != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
}

// reporters finds those of the wanted delivery that do not run: for a reason that
// somebody must see to, or not yet.
func (p *planner) reporters() {
	var pods []*unstructured.Unstructured
	for _, w := range p.plan.Workloads {
		if w.GetKind() == "Pod" && w.GetLabels()[render.DeliveryLabel] != "" {
			pods = append(pods, p.find(w))
		}
	}
	if p.Target.Delivery == v1alpha1.DeliveryDaemonSet {
		for _, o := range p.own("Pod") {
			if o.GetLabels()[render.DeliveryLabel] == string(v1alpha1.DeliveryDaemonSet) {
				pods = append(pods, o)
			}
		}
	}
	if p.Target.Delivery.InOwnersPods() {
		for _, pod := range p.Pods {
			for _, c := range pod.Status.ContainerStatuses {
				if why := stuck(c); c.Name == sidecar.ContainerName && Alive(pod) && why != "" {
					p.problem("ReporterNotRunning", fmt.Sprintf("pod %s/%s on node %s: %s", pod.Namespace, pod.Name, pod.Spec.NodeName, why))
				}
			}
		}
	}
	waiting := 0
	for _, o := range pods {
		switch ok, why := starts(o); {
		case ok:
		case why != "":
			p.problem("ReporterNotRunning", fmt.Sprintf("pod %s/%s on node %s: %s", o.GetNamespace(), o.GetName(), nodeOf(o), why))
		default:
			waiting++
		}
	}
	if waiting > 0 {
		p.waits = append(p.waits, fmt.Sprintf("%d of %d reporters are to start", waiting, len(pods)))
	}
}

// starts says whether a pod runs, or else why it cannot, empty while it may yet.
func starts(o *unstructured.Unstructured) (ok bool, why string) {
	if running(o) {
		return true, ""
	}
	_, why = started(o)
	return false, why
}

// mountedByOwn says whether a pod of ours still mounts a ConfigMap.
func (p *planner) mountedByOwn(name string) bool {
	for _, o := range p.own("Pod") {
		if pod, err := podOf(o); err == nil && mounts(&pod.Spec, name) {
			return true
		}
	}
	return false
}

// pruneSecrets names the credentials that nothing uses any more.
func (p *planner) pruneSecrets() {
	for _, kind := range []v1alpha1.Credentials{v1alpha1.CredentialsMintedToken, v1alpha1.CredentialsClientCertificate, v1alpha1.CredentialsLegacyToken} {
		name := render.CredentialsName(p.Target.Name, kind)
		wanted := p.plan.Credentials != nil && p.plan.Credentials.Name == name
		if !wanted && (!p.mounted(name) || p.Going) && slices.Contains(p.state.Secrets, name) {
			p.plan.DeleteSecrets = append(p.plan.DeleteSecrets, name)
		}
	}
}

// takeBack plans a target without reporters: what runs goes first, and each next
// thing when nothing is left that needs it. remember keeps the ClusterRole: there
// are plugins, and others report on them.
func (p *planner) takeBack(remember bool) error {
	if remember || len(p.own("ClusterRole")) > 0 {
		if _, err := p.identity(); err != nil {
			return err
		}
	}
	p.plan.Status = Status{"True", "Off", "no KMS plugin is named, so nothing is delivered"}
	if p.Going {
		p.plan.Status = Status{"True", "Removed", "everything is taken back"}
	}
	if p.eject() {
		p.plan.Status = Status{"False", ReasonRemoving, "the reporter is taken out of the Deployment"}
		return nil
	}
	for stage, kinds := range stages {
		for kind := range kinds {
			if !p.OwnKnown[kind] {
				p.plan.Status = Status{"Unknown", ReasonRemoving, "what is left cannot be listed yet: " + kind}
				return nil
			}
		}
		here, kept := p.takenBackAt(kinds)
		if stage == mountedStage {
			p.pruneSecrets()
			kept = kept || len(p.state.Secrets) > 0
		}
		if stage == len(stages)-1 {
			p.plan.Clean = true
			switch {
			case remember:
				return nil
			case len(here) > 0 && p.ReportsLeft:
				p.plan.Status = Status{"False", ReasonRemoving, "the reports are taken off the operator resource"}
				return nil
			case len(here) > 0:
				p.plan.Anchor, p.plan.Gone = nil, true
			}
		}
		if len(here) > 0 || kept {
			p.plan.Delete = here
			p.plan.Status = Status{"False", ReasonRemoving, "the reporters are taken back"}
			return nil
		}
	}
	p.plan.Gone = true
	return nil
}

// takenBackAt is what goes at one stage, and whether more of it must wait.
func (p *planner) takenBackAt(kinds map[string]bool) (here []*unstructured.Unstructured, kept bool) {
	for _, o := range p.Own {
		switch {
		case !kinds[o.GetKind()]:
		case o.GetKind() == "Role" && !p.Going:
			// By it the operator reads the target's Secret: KMS may be turned on.
		case kinds["ConfigMap"] && !p.Going && p.mounted(o.GetName()):
			kept = true
		default:
			here = append(here, o)
		}
	}
	return here, kept
}

// reported says whether the reporters of the wanted delivery and credentials have
// written from every node.
func (p *planner) reported() bool {
	since := p.newReporters()
	for _, s := range p.sites {
		began, there := since[s.Node]
		if !there {
			return false
		}
		if p.Resource == nil || p.Config.Format == v1alpha1.FormatHealthReports {
			continue // there is nothing that tells one reporter's writes from another's
		}
		// A reporter's condition has the second in which it first wrote.
		if p.Resource.Since(s.Node).Before(began.Truncate(time.Second)) {
			return false
		}
	}
	return true
}

// newReporters are the running pods of the wanted delivery and credentials: when
// each began, by node.
func (p *planner) newReporters() map[string]time.Time {
	began := map[string]time.Time{}
	if !p.Target.Delivery.InOwnersPods() {
		for _, o := range p.own("Pod") {
			if o.GetLabels()[render.DeliveryLabel] == string(p.Target.Delivery) && running(o) {
				began[nodeOf(o)] = o.GetCreationTimestamp().Time
			}
		}
		return began
	}
	for _, pod := range p.Pods {
		hasSecret := mounts(&pod.Spec, render.CredentialsName(p.Target.Name, p.Target.Credentials))
		if Alive(pod) && sidecar.Injected(&pod.Spec) && (hasSecret || p.Target.Delivery == v1alpha1.DeliveryExternal) {
			began[pod.Spec.NodeName] = pod.CreationTimestamp.Time
		}
	}
	return began
}
