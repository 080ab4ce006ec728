package reportercontroller

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// replaceAfter is how long a managed pod that has ended permanently is kept. A pod that a kubelet does not admit ends
// at once, and so would its successor.
const replaceAfter = 30 * time.Second

// ended reports whether a pod has ended permanently.
func ended(o *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase == string(corev1.PodFailed) || phase == string(corev1.PodSucceeded)
}

// madeAgain returns the API server's pod of a companion if that pod was created again under the same UID: a static
// pod whose manifest was moved away and back. The companion still mounts the previous volumes. All containers of that
// pod then started after the companion's, by the clock of their node. nil: it was not created again.
func (s *Snapshot) madeAgain(companion *unstructured.Unstructured) *corev1.Pod {
	beside := companion.GetAnnotations()[contract.BesideAnnotation]
	if beside == "" { // an agent: it belongs to no pod
		return nil
	}
	began := firstStart(informers.As[corev1.Pod](companion))
	at := slices.IndexFunc(s.Pods, func(pod *corev1.Pod) bool {
		uid, err := objects.PodUID(pod)
		return err == nil && uid == beside && pod.Spec.NodeName == nodeOf(companion) && firstStart(pod).After(began)
	})
	if began.IsZero() || at < 0 {
		return nil
	}
	return s.Pods[at]
}

// firstStart returns the earliest start of the running containers of a pod; zero: none runs.
func firstStart(pod *corev1.Pod) (first time.Time) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if running := c.State.Running; running != nil && (first.IsZero() || running.StartedAt.Time.Before(first)) {
			first = running.StartedAt.Time
		}
	}
	return first
}

// cutOff reports whether a companion mounts volumes from before its pod was created again. Such a companion does not
// report, or finds no plugin while all containers of the pod have run for a while: a previous volume in memory looks
// empty, others are deleted. A companion that was created after the pod's container mounts the current volumes,
// whatever its node's clock says. After a restart of a node, the status of static pods is written before that of
// other pods: both then have the same volumes.
func (p *planner) cutOff(companion *unstructured.Unstructured) bool {
	pod := p.madeAgain(companion)
	if pod == nil {
		return false
	}
	runs := p.Seen[types.UID(delivery.ContainerStatus(pod, p.Target.Container).ContainerID)]
	if runs < startsWithin || p.Seen[companion.GetUID()] < runs {
		return false
	}
	settled := !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(c corev1.ContainerStatus) bool { return c.State.Running == nil && !c.Ready })
	silence := p.state.Silent[nodeOf(companion)]
	return !slices.ContainsFunc(p.reports(), func(r operatorstatus.Report) bool {
		silent := time.Duration(silence.For)*time.Second >= r.Validity() && silence.Report == rollup.HashOf(r.Entries)
		return r.Node == nodeOf(companion) && r.Reporter() == string(companion.GetUID()) && !silent &&
			(!settled || slices.ContainsFunc(r.Entries, findsPlugin))
	})
}

func (s *Snapshot) reports() []operatorstatus.Report {
	return cmp.Or(s.Resource, &operatorstatus.Status{}).Reports
}

// findsPlugin reports whether something listened on a plugin's socket. It is true if that is not known.
func findsPlugin(e contract.Entry) bool {
	return e.Reason != contract.SocketMissing && e.Reason != contract.ConnectFailed
}

func nodeOf(o *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node
}

// succeeds reports whether a companion replaces another one on its node. Both are for the same API server pod, or the
// pod of the previous one still exists and is not being deleted.
func (p *planner) succeeds(next, before *unstructured.Unstructured) bool {
	beside, now := before.GetAnnotations()[contract.BesideAnnotation], next.GetAnnotations()[contract.BesideAnnotation]
	return beside != "" && now != "" && nodeOf(next) == nodeOf(before) &&
		(now == beside || slices.ContainsFunc(p.pods, func(a apiServerPod) bool {
			return a.UID == beside && a.Node == nodeOf(before) && a.pod.DeletionTimestamp == nil
		}))
}

// unobserved ends a message about an object whose status is of an earlier generation.
const unobserved = "kube-controller-manager has not acted on that yet"

// selectsNodes finds a DaemonSet that runs nowhere, or whose pods are not all created and updated.
func (p *planner) selectsNodes() {
	for _, o := range p.own("DaemonSet") {
		ds := informers.As[appsv1.DaemonSet](o)
		if ds.DeletionTimestamp != nil || ds.Generation == 0 {
			continue
		}
		what, wanted, exist := ssa.Describe(o), ds.Status.DesiredNumberScheduled, ds.Status.CurrentNumberScheduled
		switch {
		case ds.Status.ObservedGeneration != ds.Generation:
			p.wait("%s has changed, and %s", what, unobserved)
		case exist < wanted:
			p.wait("%s has %d of %d pods: %s", what, exist, wanted, cmp.Or(p.Failures[ds.UID], "its events show why"))
		case ds.Status.UpdatedNumberScheduled < wanted:
			p.wait("%s is being rolled out: %d of %d pods are updated", what, ds.Status.UpdatedNumberScheduled, wanted)
		case wanted == 0:
			p.problem(contract.NoReporters, "%s selects no node: no node has the labels %s; set nodeSelector", what,
				cmp.Or(labels.Set(p.Target.NodeSelector).String(), objects.ControlPlaneLabel))
		}
	}
}

// notStarted adds a wait for each managed pod that does not start, with the reason from Events.
func (p *planner) notStarted() {
	for _, o := range p.own("Pod") {
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		if why := p.Failures[o.GetUID()]; why != "" && phase == string(corev1.PodPending) && o.GetDeletionTimestamp() == nil {
			p.wait("%s on node %s does not start: %s", ssa.Describe(o), nodeOf(o), why)
		}
	}
}

// inAPIServerPods finds what prevents the API server's own pods from having the reporter.
func (p *planner) inAPIServerPods() {
	withReporter, alive := 0, 0
	for _, pod := range p.Pods {
		if delivery.Alive(pod) {
			alive++
		}
		if delivery.Alive(pod) && objects.Injected(&pod.Spec) {
			withReporter++
		}
	}
	d, ownerInjects, namespace := p.Deployment, p.Target.OwnerInjects(), p.Target.Namespace
	switch {
	case !ownerInjects && d == nil: // DeploymentMissing
	case alive == 0:
		p.problem(contract.NoReporters, "no pod of the API server runs in namespace %s", namespace)
	case withReporter < alive && (withReporter > 0 || !ownerInjects):
		p.wait("%d of %d pods in namespace %s have the reporter", withReporter, alive, namespace)
	case !ownerInjects && d.Status.ObservedGeneration != d.Generation:
		p.wait("Deployment %s/%s has changed, and %s", namespace, d.Name, unobserved)
	case !ownerInjects && d.Status.UpdatedReplicas < d.Status.Replicas:
		p.wait("Deployment %s/%s is being rolled out: %d of %d pods are updated", namespace, d.Name,
			d.Status.UpdatedReplicas, d.Status.Replicas)
	case ownerInjects && withReporter == 0 && len(p.pods) > 0:
		p.problem(contract.NoReporters, "no pod in namespace %s has a container %s: its owner must add it", namespace,
			contract.ReporterContainer)
	}
}

// takenOverOn reports whether a reporter of the wanted delivery runs on a node. If the node's condition exists, it
// must name this reporter.
func (p *planner) takenOverOn(node string) bool {
	running := p.running(node)
	for _, r := range p.reports() {
		if r.Node == node && r.Form == operatorstatus.FormCondition {
			return slices.Contains(running, r.Reporter())
		}
	}
	return len(running) > 0
}

// running returns the UIDs of the pods on a node that have a reporter of the wanted delivery. Pods that other ones of
// the same delivery are to replace are not among them.
func (p *planner) running(node string) (uids []string) {
	if p.Target.Mode.InOwnersPods() {
		for _, pod := range p.Pods {
			if uid, err := objects.PodUID(pod); err == nil && pod.Spec.NodeName == node && delivery.Alive(pod) &&
				objects.Injected(&pod.Spec) {
				uids = append(uids, uid)
			}
		}
		return uids
	}
	for _, o := range p.own("Pod") {
		pod := informers.As[corev1.Pod](o)
		runs := pod.Status.Phase == corev1.PodRunning && !slices.ContainsFunc(pod.Status.ContainerStatuses,
			func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
		if runs && pod.Spec.NodeName == node && modeOf(o) == p.Target.Mode && (p.Target.Mode.ServesNode() || p.wants(o)) {
			uids = append(uids, string(o.GetUID()))
		}
	}
	return uids
}
