package delivery

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// RevisionLabel is what static pods have their revision in, of OpenShift's operators.
const RevisionLabel = "revision"

// RevisionOf is the revision of the encryption config that pods of a spec use,
// empty for the live one: from the Secret that they mount, else from the label
// that static pods have.
func RevisionOf(secret string, spec *corev1.PodSpec, labels map[string]string) string {
	for _, v := range spec.Volumes {
		if v.Secret == nil {
			continue
		}
		if v.Secret.SecretName == secret {
			return ""
		}
		if revision, ok := strings.CutPrefix(v.Secret.SecretName, secret+"-"); ok && number.MatchString(revision) {
			return revision
		}
	}
	if revision := labels[RevisionLabel]; number.MatchString(revision) {
		return revision
	}
	return ""
}

// ContainerStatus is that of the API server's container of a pod, the zero one if it has none. Between two containers
// it has the ID of the one that ended.
func ContainerStatus(pod *corev1.Pod, container string) corev1.ContainerStatus {
	served, err := objects.APIServerContainer(&pod.Spec, container)
	for _, s := range pod.Status.ContainerStatuses {
		if err == nil && s.Name == served.Name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// number matches a revision.
var number = regexp.MustCompile(`^[0-9]{1,10}$`)

// Alive reports whether a pod is on a node and has not ended permanently.
func Alive(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
