package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// placed is the node and the owner of a pod.
type placed struct{ node, owner string }

// schedule binds a pod to the fitting node with the fewest pods of the same owner. It does not count pods that are
// being deleted, so a replacement takes the place of the pod that it replaces. Names decide a tie. A pod that fits
// nowhere is queued again when a node changes.
func (n *Nodes) schedule(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	var fitting []string
	for _, object := range n.nodes.List() {
		node := object.(*corev1.Node)
		if n.kubelets[node.Name] != nil && fits(pod, node) {
			fitting = append(fitting, node.Name)
		}
	}
	if len(fitting) == 0 {
		return nil
	}
	// Choose the node and record it under the lock: several pods are scheduled concurrently.
	n.mu.Lock()
	pods := n.pods.List()
	load := map[string]int{}
	unseen := map[string]placed{}
	for _, object := range pods {
		other := object.(*corev1.Pod)
		at := placed{other.Spec.NodeName, ownerOf(other)}
		if unbound(other) {
			at = n.assumed[string(other.UID)]
			unseen[string(other.UID)] = at
		}
		if at.owner == ownerOf(pod) && other.DeletionTimestamp == nil {
			load[at.node]++
		}
	}
	node := slices.MinFunc(fitting, func(a, b string) int {
		return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(a, b))
	})
	n.assumed = unseen // the watch shows the other pods as bound or deleted
	n.assumed[string(pod.UID)] = placed{node, ownerOf(pod)}
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

func ownerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// fits checks the nodeSelector, and the node's name, which the DaemonSet controller writes into the affinity.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return true
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && !slices.Contains(r.Values, node.Name)
		})
	})
}
