package delivery

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
	if revision := labels["revision"]; number.MatchString(revision) {
		return revision
	}
	return ""
}

// number matches a revision.
var number = regexp.MustCompile(`^[0-9]{1,10}$`)

// Alive reports whether a pod is on a node and has not ended permanently.
func Alive(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
