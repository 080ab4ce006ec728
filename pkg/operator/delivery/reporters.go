package delivery

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/podspec"
)

const (
	// replaceAfter is for how long an own pod that has ended permanently is left: one
	// that a kubelet does not admit ends at once, and so would the next.
	replaceAfter = 30 * time.Second
	// firstReport is how long a reporter may take to its first report, beyond four
	// intervals of its probes: it waits for credentials, and retries its writes.
	firstReport = 3 * time.Minute
)

// replaceEnded deletes wanted pods that have ended permanently: by an eviction, a
// graceful shutdown of their node, or a kubelet that did not admit them. The sync after
// it makes them again.
func (p *planner) replaceEnded() {
	for _, w := range p.plan.Workloads {
		o := p.find(w)
		if w.GetKind() != "Pod" || o == nil || o.GetDeletionTimestamp() != nil || !ended(o, w) {
			continue
		}
		if at := o.GetCreationTimestamp().Add(replaceAfter); p.Now.Before(at) {
			p.requeue(at)
			continue
		}
		p.plan.Delete = append(p.plan.Delete, o)
	}
}

// ended reports whether a pod has ended that should run. A pod that proves an image ends
// normally.
func ended(o, wanted *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase == string(corev1.PodFailed) ||
		phase == string(corev1.PodSucceeded) && wanted.GetLabels()[manifests.DeliveryLabel] != ""
}

// reporters finds what is wrong with the reporters of the wanted delivery.
func (p *planner) reporters() {
	switch p.Target.Delivery {
	case v1alpha1.DeliveryCompanion:
		var pods []*unstructured.Unstructured
		for _, w := range p.plan.Workloads {
			if w.GetKind() == "Pod" && w.GetLabels()[manifests.DeliveryLabel] != "" {
				pods = append(pods, p.find(w))
			}
		}
		for _, o := range p.own("Pod") { // those that are replaced later still report
			if slices.ContainsFunc(p.later, func(w *unstructured.Unstructured) bool { return sameBeside(w, o) }) {
				pods = append(pods, o)
			}
		}
		p.running(pods)
		if len(p.pods) == 0 {
			p.awaits = true
			p.waits = append(p.waits, "no running pod of the API server has a KMS plugin yet")
		}
	case v1alpha1.DeliveryDaemonSet:
		p.running(slices.DeleteFunc(p.own("Pod"), func(o *unstructured.Unstructured) bool {
			return o.GetLabels()[manifests.DeliveryLabel] != string(v1alpha1.DeliveryDaemonSet) || o.GetDeletionTimestamp() != nil
		}))
		p.selectsNodes()
	case v1alpha1.DeliveryDeployment, v1alpha1.DeliveryExternal:
		p.inAPIServerPods()
	}
	p.writing()
}

// running finds reporters that do not run: for a reason that requires action, or not
// yet.
func (p *planner) running(pods []*unstructured.Unstructured) {
	waiting := 0
	for _, o := range pods {
		switch status := p.statusOf(o); {
		case status.Phase == podspec.Running:
		case status.CannotStart():
			p.problem(ReporterNotRunning, fmt.Sprintf("pod %s/%s on node %s: %s", o.GetNamespace(), o.GetName(), nodeOf(o), status.Why))
			p.requeue(status.Until)
		default:
			waiting++
		}
	}
	if waiting > 0 {
		p.waits = append(p.waits, fmt.Sprintf("%d of %d reporters are starting", waiting, len(pods)))
	}
}

// selectsNodes finds a DaemonSet that runs nowhere.
func (p *planner) selectsNodes() {
	for _, o := range p.own("DaemonSet") {
		generation, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		wanted, _, _ := unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled")
		if o.GetDeletionTimestamp() == nil && generation > 0 && generation == o.GetGeneration() && wanted == 0 {
			p.problem(NoReporters, fmt.Sprintf("DaemonSet %s/%s selects no node: %s", o.GetNamespace(), o.GetName(), selects(p.Target.NodeSelector)))
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
		if podspec.Injected(&pod.Spec) {
			withReporter++
		}
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			if status := podspec.ContainerStatusOf(pod, c, p.Now); c.Name == podspec.ContainerName && status.CannotStart() {
				p.problem(ReporterNotRunning, fmt.Sprintf("pod %s/%s on node %s: %s", pod.Namespace, pod.Name, pod.Spec.NodeName, status.Why))
				p.requeue(status.Until)
			}
		}
	}
	d := p.Deployment
	switch {
	case p.Target.Delivery == v1alpha1.DeliveryDeployment && d == nil: // DeploymentMissing
	case p.Target.Delivery == v1alpha1.DeliveryDeployment && d.Spec.Paused && withReporter < max(1, alive):
		p.problem(DeploymentPaused, fmt.Sprintf("Deployment %s/%s is paused, and %d of its %d pods have the reporter: `kubectl rollout resume -n %s deployment %s`", d.Namespace, d.Name, withReporter, alive, d.Namespace, d.Name))
	case alive == 0:
		p.problem(NoReporters, fmt.Sprintf("no pod of the API server runs in namespace %s", p.Target.Namespace))
	case p.Target.Delivery == v1alpha1.DeliveryExternal && withReporter == 0 && len(p.pods) > 0:
		p.problem(NoReporters, fmt.Sprintf("no pod in namespace %s has a container %s: its owner adds it", p.Target.Namespace, podspec.ContainerName))
	}
}

// writing finds reporters that run, but have not written a report.
func (p *planner) writing() {
	if p.Resource == nil {
		return
	}
	wait := firstReport + health.StaleIntervals*p.Config.Probe.Interval.Duration
	var missing []string
	for node, began := range p.newReporters() {
		if !slices.ContainsFunc(p.pods, func(a apiServerPod) bool { return a.Node == node }) || reportedSince(p.Resource, node, began) {
			continue
		}
		if due := began.Add(wait); p.Now.Before(due) {
			p.requeue(due)
			continue
		}
		missing = append(missing, node)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		p.problem(ReportersNotWriting, fmt.Sprintf("the reporters of %v run and have written no report to %s/%s: their logs show why", missing, p.Target.Resource, p.ReportsTo().Name))
	}
}

// statusOf reads the status of a pod of ours; nil: it does not exist yet.
func (p *planner) statusOf(o *unstructured.Unstructured) podspec.Status {
	if o == nil {
		return podspec.Status{Phase: podspec.Starting}
	}
	pod := source.As[corev1.Pod](o)
	if pod == nil {
		return podspec.Status{Phase: podspec.Failing, Why: "its object cannot be read"}
	}
	return podspec.StatusOf(pod, p.Now)
}

// runs reports whether a pod's containers all run.
func (p *planner) runs(o *unstructured.Unstructured) bool {
	return p.statusOf(o).Phase == podspec.Running
}

// reported reports whether the reporters of the wanted delivery and credentials have
// written from every node that needs one.
func (p *planner) reported() bool {
	since := p.newReporters()
	for _, a := range p.pods {
		if a.thirdParty {
			continue
		}
		began, exists := since[a.Node]
		if !exists {
			return false
		}
		if p.Resource == nil || p.Config.Format == v1alpha1.FormatHealthReports {
			continue // typed reports do not show which reporter wrote them
		}
		if !beganSince(p.Resource, a.Node, began) {
			p.requeue(p.Now.Add(p.Config.Probe.Interval.Duration))
			return false
		}
	}
	return true
}

// newReporters are the running reporters of the wanted delivery and credentials: when
// each began, by node.
func (p *planner) newReporters() map[string]time.Time {
	began := map[string]time.Time{}
	if !p.Target.Delivery.InOwnersPods() {
		for _, o := range p.own("Pod") {
			if o.GetLabels()[manifests.DeliveryLabel] == string(p.Target.Delivery) && p.runs(o) {
				began[nodeOf(o)] = o.GetCreationTimestamp().Time
			}
		}
		return began
	}
	for _, pod := range p.Pods {
		hasSecret := mounts(&pod.Spec, manifests.CredentialsName(p.Target.Name, p.Target.Credentials))
		if Alive(pod) && podspec.Injected(&pod.Spec) && (hasSecret || p.Target.Delivery == v1alpha1.DeliveryExternal) {
			began[pod.Spec.NodeName] = pod.CreationTimestamp.Time
		}
	}
	return began
}

// otherClock is by how much the time of a report, by its node's clock, must be after that of
// its write, by the API server's clock, for the node's clock to be considered wrong: times
// are of whole seconds, and a difference of one is none.
const otherClock = 10 * time.Second

// beganSince reports whether a node's reporter first wrote its condition after a
// time, by the API server's clock.
func beganSince(s *operatorcr.Status, node string, began time.Time) bool {
	for i := range s.Reports {
		r := &s.Reports[i]
		if r.Node != node || r.Form != operatorcr.FormCondition {
			continue
		}
		first := r.Since // by the node's clock
		newest := time.Time{}
		for _, e := range r.Entries {
			if e.LastChecked.After(newest) {
				newest = e.LastChecked
			}
		}
		if difference := r.Written.Sub(newest); !newest.IsZero() && !r.Written.IsZero() && (difference > 0 || difference < -otherClock) {
			// Where it is before, it may be the duration of a write, too. A new reporter that
			// is never recognized would be worse than one that is recognized too soon.
			first = first.Add(difference)
		}
		return !first.Before(began.Truncate(time.Second))
	}
	return false
}

// reportedSince reports whether a node's reporter wrote, in any form, after a time.
func reportedSince(s *operatorcr.Status, node string, began time.Time) bool {
	return slices.ContainsFunc(s.Reports, func(r operatorcr.Report) bool {
		return r.Node == node && !r.Written.Before(began.Truncate(time.Second))
	})
}

func nodeOf(o *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node
}
