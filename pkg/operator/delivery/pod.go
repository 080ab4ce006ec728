package delivery

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// RevisionLabel is what pods of OpenShift's operators have their revision in.
const RevisionLabel = "revision"

// RevisionOf is the revision of the encryption config that pods of a spec read, empty for the live one: of the Secret
// that they mount, else by the label. A static pod mounts no Secret. A pod that has the label and mounts other Secrets
// reads no encryption config: OpenShift's oauth-apiserver, while another provider authenticates users, stores nothing.
func RevisionOf(secret string, spec *corev1.PodSpec, labels map[string]string) (revision string, reads bool) {
	others := false
	for _, v := range spec.Volumes {
		if v.Secret == nil {
			continue
		}
		if v.Secret.SecretName == secret {
			return "", true
		}
		if revision, ok := strings.CutPrefix(v.Secret.SecretName, secret+"-"); ok && number.MatchString(revision) {
			return revision, true
		}
		others = true
	}
	if revision := labels[RevisionLabel]; number.MatchString(revision) {
		return revision, !others
	}
	return "", true
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
