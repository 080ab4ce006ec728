package contract

import "strings"

// ValidPodUID reports whether a text has the form of a pod's UID: 1 to 63 letters, digits
// and '-', with a letter or digit at both ends. It is a UUID, or the 32 hexadecimal digits that
// the kubelet computes for a static pod.
//
// The downward API (fieldRef metadata.uid) gives a container the UID that its kubelet knows the pod
// by. For a static pod that is never the metadata.uid that the API server shows, which is the mirror
// pod's: it is the manifest's own (OpenShift's installer sets one), or a hash of the manifest, the node's
// name and the file's path, and the mirror's annotation kubernetes.io/config.hash has it (applyDefaults
// in k8s.io/kubernetes/pkg/kubelet/config). It changes when the manifest does.
func ValidPodUID(uid string) bool { return IsWord(uid, "-") }

// IsWord reports whether a text is 1 to 63 letters, digits and the other characters given, with a
// letter or digit at both ends. (A regular expression would be compiled at each start.)
func IsWord(text, other string) bool {
	const most = 63
	isOther := func(r rune) bool { return !isLetterOrDigit(r) && !strings.ContainsRune(other, r) }
	return text != "" && len(text) <= most && strings.Trim(text, other) == text && !strings.ContainsFunc(text, isOther)
}

func isLetterOrDigit(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}
