package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// assumption is a binding that was written, and that our copy of the pods may not
// show yet.
type assumption struct {
	node  string
	owner string
}

// schedule binds a pod to the node that it fits with the fewest pods of its
// owner on it, then the fewest at all, then by name. A pod that fits nowhere reports
// so, and is looked at again when a node changes. Pods of another scheduler, and
// those with scheduling gates, are left alone.
func (n *Nodes) schedule(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || pod.Spec.SchedulerName != corev1.DefaultSchedulerName || len(pod.Spec.SchedulingGates) > 0 {
		return nil
	}
	var fitting []string
	for _, object := range n.nodes.List() {
		node := object.(*corev1.Node)
		if n.kubelet(node.Name) != nil && fits(pod, node) {
			fitting = append(fitting, node.Name)
		}
	}
	if len(fitting) == 0 {
		return n.unschedulable(ctx, pod)
	}
	// Guessed and noted in one go, since several are scheduled at a time.
	n.mu.Lock()
	node := choose(fitting, ownerOf(pod), n.placed())
	n.assumed[string(pod.UID)] = assumption{node: node, owner: ownerOf(pod)}
	n.mu.Unlock()
	err := n.admin.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		n.mu.Lock()
		delete(n.assumed, string(pod.UID))
		n.mu.Unlock()
		return fmt.Errorf("bind pod %s to %s: %w", keyOf(pod), node, err)
	}
	return nil
}

// placed lists what is on which node, by what we know. It needs n.mu.
func (n *Nodes) placed() []assumption {
	var placed []assumption
	unseen := map[string]assumption{}
	for _, object := range n.pods.List() {
		pod := object.(*corev1.Pod)
		if pod.Spec.NodeName != "" {
			placed = append(placed, assumption{node: pod.Spec.NodeName, owner: ownerOf(pod)})
		} else if a, ok := n.assumed[string(pod.UID)]; ok {
			placed = append(placed, a)
			unseen[string(pod.UID)] = a
		}
	}
	n.assumed = unseen // the others are bound or deleted
	return placed
}

func choose(fitting []string, owner string, placed []assumption) string {
	type load struct{ ofOwner, all int }
	loads := map[string]load{}
	for _, a := range placed {
		l := loads[a.node]
		l.all++
		if owner != "" && a.owner == owner {
			l.ofOwner++
		}
		loads[a.node] = l
	}
	return slices.MinFunc(fitting, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(loads[a].ofOwner, loads[b].ofOwner),
			cmp.Compare(loads[a].all, loads[b].all),
			cmp.Compare(a, b))
	})
}

func ownerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

func (n *Nodes) unschedulable(ctx context.Context, pod *corev1.Pod) error {
	next := pod.DeepCopy()
	changed := setCondition(&next.Status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "no simulated node fits",
	}, metav1.Now())
	if !changed {
		return nil
	}
	if _, err := n.admin.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write that pod %s is unschedulable: %w", keyOf(pod), err)
	}
	return nil
}

// fits implements the filters of the scheduler that depend on the specs of pod
// and node: spec.unschedulable, taints, nodeSelector, required node affinity.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, &taint) {
			return false
		}
	}
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	// One term is enough.
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			return false // by the API's rule: an empty term matches nothing
		}
		return all(term.MatchExpressions, node.Labels) && all(term.MatchFields, map[string]string{metav1.ObjectNameField: node.Name})
	})
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool {
		return toleration.ToleratesTaint(klog.Background(), taint, false)
	})
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func all(requirements []corev1.NodeSelectorRequirement, values map[string]string) bool {
	for _, r := range requirements {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err != nil || !requirement.Matches(labels.Set(values)) {
			return false
		}
	}
	return true
}
