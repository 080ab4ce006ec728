package delivery

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// RevisionLabel is the label that has the revision of a pod of OpenShift's operators.
const RevisionLabel = "revision"

// RevisionOf returns the revision of the encryption config that pods with a spec read; empty: the live one. It is
// part of the name of the Secret that they mount. Without such a Secret it is the label: a static pod mounts none. A
// pod that has the label but mounts other Secrets reads no encryption config: OpenShift's oauth-apiserver stores
// nothing while another provider authenticates users.
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

// ContainerStatus returns the status of the API server's container of a pod; zero if there is none. While the
// container restarts, the status has the ID of the ended one.
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
