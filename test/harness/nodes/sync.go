package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sync takes one pod, or what is left of it, a step further. Every step that
// changes something is followed by an event that leads here again.
func (n *Nodes) sync(ctx context.Context, key string) error {
	pod, err := get[*corev1.Pod](n.pods, key)
	if err != nil {
		return err
	}
	manifest := n.static(key)

	// 1. What runs under this name, and no longer should, ends first.
	if !n.endOthers(key, wanted(pod, manifest)) {
		return nil
	}
	// 2. A static pod has a mirror, and no other pod has one.
	if manifest != nil {
		if done, err := n.mirror(ctx, manifest, pod); !done || err != nil {
			return err
		}
	}
	if pod == nil {
		return nil
	}
	// 3. A pod without a node is the scheduler's.
	if pod.Spec.NodeName == "" {
		return n.schedule(ctx, pod)
	}
	k := n.kubelet(pod.Spec.NodeName)
	if k == nil {
		return nil
	}
	if pod.DeletionTimestamp != nil || isMirror(pod) && manifest == nil {
		return deleteNow(ctx, k.client, pod)
	}
	if hasEnded(pod) {
		return nil
	}
	// 4. It runs, and its status shows it.
	s, err := n.sandbox(k, pod)
	if err != nil || s == nil {
		return err
	}
	status := podStatus(pod, s.hostIP, s.podIP, n.behaviourOf(pod), metav1.Now())
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return nil
	}
	next := pod.DeepCopy()
	next.Status = status
	if _, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of pod %s: %w", key, err)
	}
	return nil
}

// wanted is the identity of what should run under a name, or nothing.
func wanted(pod *corev1.Pod, manifest *static) string {
	switch {
	case manifest != nil:
		// A mirror may be deleted and created again; its pod stays.
		return manifest.hash
	case pod != nil && pod.DeletionTimestamp == nil && !isMirror(pod):
		return string(pod.UID)
	}
	return ""
}

// identity is the UID by which a kubelet identifies a pod.
func identity(pod *corev1.Pod) string {
	if isMirror(pod) {
		return pod.Annotations[ConfigHashAnnotation]
	}
	return string(pod.UID)
}

func unbound(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" }

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
