package apiserver

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/podstatus"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

const (
	// replaceAfter is for how long an own pod that has ended permanently is left: one
	// that a kubelet does not admit ends at once, and so would the next.
	replaceAfter = 30 * time.Second
)

// replaceEnded deletes wanted pods that have ended permanently: by an eviction, a
// graceful shutdown of their node, or a kubelet that did not admit them. The sync after
// it makes them again.
func (p *planner) replaceEnded() {
	for _, w := range p.plan.Workloads {
		o := p.find(w)
		if w.GetKind() != "Pod" || o == nil || o.GetDeletionTimestamp() != nil || !ended(o) {
			continue
		}
		if at := o.GetCreationTimestamp().Add(replaceAfter); p.Now.Before(at) {
			p.requeue(at)
			continue
		}
		p.plan.Delete = append(p.plan.Delete, o)
	}
}

// ended reports whether a pod has ended permanently.
func ended(o *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase == string(corev1.PodFailed) || phase == string(corev1.PodSucceeded)
}

// reporters finds what is wrong with the reporters of the wanted delivery.
func (p *planner) reporters() {
	switch p.Target.Mode {
	case v1alpha1.ModeCompanionPod:
		var pods []*unstructured.Unstructured
		for _, w := range p.plan.Workloads {
			if w.GetKind() == "Pod" {
				pods = append(pods, p.find(w))
			}
		}
		p.running(pods)
		p.replacing(pods)
		if len(p.pods) == 0 {
			p.awaits = true
			p.waits = append(p.waits, "no running pod of the API server has a KMS plugin yet")
		}
	case v1alpha1.ModeDaemonSet:
		p.running(slices.DeleteFunc(p.own("Pod"), func(o *unstructured.Unstructured) bool {
			return modeOf(o) != v1alpha1.ModeDaemonSet || o.GetDeletionTimestamp() != nil
		}))
		p.selectsNodes()
	case v1alpha1.ModeSidecar:
		p.inAPIServerPods()
	}
}

// running finds reporters that do not run: for a reason that requires action, or not
// yet.
func (p *planner) running(pods []*unstructured.Unstructured) {
	waiting, first := 0, ""
	for _, o := range pods {
		switch status := p.statusOf(o); {
		case status.Phase == podstatus.Running:
		case status.Phase == podstatus.Failing:
			p.problem(contract.ReporterNotRunning, fmt.Sprintf("pod %s/%s on node %s: %s", o.GetNamespace(), o.GetName(),
				nodeOf(o), status.Why))
			p.requeue(status.Until)
		case restarts(o): // the reports show it if it lasts
		default:
			waiting++
			if o != nil && first == "" {
				first = fmt.Sprintf(": pod %s/%s on node %s", o.GetNamespace(), o.GetName(), nodeOf(o))
			}
		}
	}
	if waiting > 0 {
		p.waits = append(p.waits, fmt.Sprintf("%d of %d reporters are starting%s", waiting, len(pods), first))
	}
}

// restarts reports whether a pod's reporter has run before: its restart is no rollout.
func restarts(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	pod := source.As[corev1.Pod](o)
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.RestartCount > 0 || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// replacing finds nodes where an earlier companion still reports, since the one that replaces
// it runs and has not reported.
func (p *planner) replacing(pods []*unstructured.Unstructured) {
	var nodes []string
	for _, o := range pods {
		earlier := func(e *unstructured.Unstructured) bool {
			return sameBeside(e, o) && e.GetName() != o.GetName() && e.GetDeletionTimestamp() == nil && !ended(e)
		}
		if o != nil && p.runs(o) && slices.ContainsFunc(p.own("Pod"), earlier) {
			nodes = append(nodes, nodeOf(o))
		}
	}
	if len(nodes) > 0 {
		p.waits = append(p.waits, fmt.Sprintf("the earlier reporters of nodes %v stay until the new ones report", nodes))
	}
}

// selectsNodes finds a DaemonSet that runs nowhere, or whose pods are not all created.
func (p *planner) selectsNodes() {
	for _, o := range p.own("DaemonSet") {
		generation, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		wanted, _, _ := unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled")
		exist, _, _ := unstructured.NestedInt64(o.Object, "status", "currentNumberScheduled")
		switch {
		case o.GetDeletionTimestamp() != nil || generation == 0 || generation != o.GetGeneration():
		case exist < wanted:
			p.waits = append(p.waits, fmt.Sprintf("DaemonSet %s/%s has %d of %d pods; its events show why", o.GetNamespace(),
				o.GetName(), exist, wanted))
		case wanted == 0:
			p.problem(contract.NoReporters, fmt.Sprintf("DaemonSet %s/%s selects no node: %s", o.GetNamespace(), o.GetName(),
				selects(p.Target.NodeSelector)))
		}
	}
}

// selects describes the nodes of a DaemonSet.
func selects(selector map[string]string) string {
	if selector == nil {
		return "no node has the label node-role.kubernetes.io/control-plane; set nodeSelector"
	}
	return fmt.Sprintf("its node selector is %v", selector)
}

// inAPIServerPods finds what keeps the API server's own pods from having reporters that run.
func (p *planner) inAPIServerPods() {
	withReporter, alive := 0, 0
	for _, pod := range p.Pods {
		if !Alive(pod) {
			continue
		}
		alive++
		if objects.Injected(&pod.Spec) {
			withReporter++
		}
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			if status := podstatus.OfContainer(pod, c, p.Now); c.Name == contract.ReporterContainer &&
				status.Phase == podstatus.Failing {
				p.problem(contract.ReporterNotRunning, fmt.Sprintf("pod %s/%s on node %s: %s", pod.Namespace, pod.Name,
					pod.Spec.NodeName, status.Why))
				p.requeue(status.Until)
			}
		}
	}
	d, ownerInjects := p.Deployment, p.Target.OwnerInjects()
	switch {
	case !ownerInjects && d == nil: // DeploymentMissing
	case !ownerInjects && d.Spec.Paused && withReporter < max(1, alive):
		p.problem(contract.DeploymentPaused,
			fmt.Sprintf("Deployment %s/%s is paused, and %d of its %d pods have the reporter: `kubectl rollout resume -n "+
				"%s deployment %s`", d.Namespace, d.Name, withReporter, alive, d.Namespace, d.Name))
	case alive == 0:
		p.problem(contract.NoReporters, fmt.Sprintf("no pod of the API server runs in namespace %s", p.Target.Namespace))
	case withReporter < alive && withReporter > 0 || !ownerInjects && withReporter < alive:
		p.waits = append(p.waits, fmt.Sprintf("%d of %d pods in namespace %s have the reporter", withReporter, alive,
			p.Target.Namespace))
	case !ownerInjects && rollsOut(d):
		p.waits = append(p.waits, fmt.Sprintf("Deployment %s/%s is rolled out: %d of %d pods are updated", d.Namespace,
			d.Name, d.Status.UpdatedReplicas, d.Status.Replicas))
	case ownerInjects && withReporter == 0 && len(p.pods) > 0:
		p.problem(contract.NoReporters, fmt.Sprintf("no pod in namespace %s has a container %s: its owner adds it",
			p.Target.Namespace, contract.ReporterContainer))
	}
}

// rollsOut reports whether pods of a Deployment are still those of an earlier template.
func rollsOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas < d.Status.Replicas
}

// statusOf reads the status of a pod of ours; nil: it does not exist yet.
func (p *planner) statusOf(o *unstructured.Unstructured) podstatus.Status {
	if o == nil {
		return podstatus.Status{Phase: podstatus.NotRunning}
	}
	pod := source.As[corev1.Pod](o)
	if pod == nil {
		return podstatus.Status{Phase: podstatus.Failing, Why: "its object cannot be read"}
	}
	return podstatus.Of(pod, p.Now)
}

// runs reports whether a pod's containers all run.
func (p *planner) runs(o *unstructured.Unstructured) bool {
	return p.statusOf(o).Phase == podstatus.Running
}

// reported reports whether the reporters of the wanted delivery have written from every node that needs one.
func (p *planner) reported() bool {
	wanted := p.runningReporters()
	for _, a := range p.pods {
		onNode := func(r reporter) bool { return r.node == a.Node }
		if !slices.ContainsFunc(wanted, onNode) {
			return false
		}
		if p.Resource == nil {
			continue
		}
		if !slices.ContainsFunc(wanted, func(r reporter) bool { return onNode(r) && p.hasWritten(r) }) {
			p.requeue(p.Now.Add(p.Config.Probe.Interval.Duration))
			return false
		}
	}
	return true
}

// reporter is one that runs.
type reporter struct {
	node, uid string // of its pod, as it is on its node
	began     time.Time
}

// runningReporters are those of the wanted delivery, without those that are to be replaced by
// others of it.
func (p *planner) runningReporters() (all []reporter) {
	if !p.Target.Mode.InOwnersPods() {
		for _, o := range p.own("Pod") {
			superseded := p.Target.Mode == v1alpha1.ModeCompanionPod && !p.wants(o)
			if modeOf(o) == p.Target.Mode && p.runs(o) && !superseded {
				all = append(all, reporter{nodeOf(o), string(o.GetUID()), o.GetCreationTimestamp().Time})
			}
		}
		return all
	}
	for _, pod := range p.Pods {
		if Alive(pod) && objects.Injected(&pod.Spec) {
			uid, _ := objects.PodUID(pod) // without one, its report names none either
			all = append(all, reporter{pod.Spec.NodeName, uid, pod.CreationTimestamp.Time})
		}
	}
	return all
}

// wants reports whether an own pod is as planned.
func (p *planner) wants(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(p.plan.Workloads, func(w *unstructured.Unstructured) bool { return Key(w) == Key(o) })
}

// hasWritten reports whether the condition of a reporter's node is its own: it names the
// reporter, or none, as of one that was set up by hand, and is later than its pod.
func (p *planner) hasWritten(by reporter) bool {
	return slices.ContainsFunc(p.Resource.Reports, func(r operatorcr.Report) bool {
		if r.Node != by.node || r.Form != operatorcr.FormCondition || len(r.Entries) == 0 {
			return false
		}
		if name := r.Reporter(); name != "" {
			return name == by.uid
		}
		return !r.Entries[0].LastChecked.Before(by.began.Truncate(time.Second))
	})
}

func nodeOf(o *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node
}
