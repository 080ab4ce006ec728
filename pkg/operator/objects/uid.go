package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
)

// hashAnnotation is kubelet's ConfigHashAnnotationKey
// (k8s.io/kubernetes, pkg/kubelet/types/pod_update.go).
const hashAnnotation = "kubernetes.io/config.hash"

// PodUID returns the UID by which the kubelet identifies a pod, and names its folder. It
// is the pod's own, except for the mirror of a static pod: the static pod's is in
// the mirror's annotation kubernetes.io/config.hash, and changes with the
// manifest. It is the one that a report of the pod names as its reporter. It is always
// contract.ValidPodUID, since it becomes part of a path: whoever may annotate a pod
// must not choose the path.
func PodUID(pod *corev1.Pod) (string, error) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		uid, there := pod.Annotations[hashAnnotation]
		if !there {
			return "", fmt.Errorf("metadata.annotations[%s]: is missing in the mirror of a static pod, whose UID it holds",
				hashAnnotation)
		}
		if !contract.ValidPodUID(uid) {
			return "", fmt.Errorf("metadata.annotations[%s]: %.70q is not the UID of a static pod", hashAnnotation, uid)
		}
		return uid, nil
	}
	if !contract.ValidPodUID(string(pod.UID)) {
		return "", fmt.Errorf("metadata.uid: %.70q is not the UID of a pod", pod.UID)
	}
	return string(pod.UID), nil
}
