package contract

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
)

const (
	// ConditionTypePrefix begins the type of every reporter's condition; the node's name follows. The type ends in
	// none of the suffixes that an operator's StatusSyncer unites (Available, Degraded, Progressing, Upgradeable), so
	// a single node's report never moves a cluster operator.
	ConditionTypePrefix = "KMSHealthReporter_"

	// ConditionStatus and ConditionReason are those of every reporter's condition, whatever the
	// plugins' state: that is in the message.
	ConditionStatus = "True"
	ConditionReason = "AsExpected"

	// fieldManagerPrefix begins the name of a reporter's field manager.
	fieldManagerPrefix = "kms-health-reporter-"
	// maxFieldManager is the API server's bound on a field manager's name, in
	// bytes (k8s.io/apimachinery/pkg/apis/meta/v1/validation).
	maxFieldManager = 128
	cutFieldManager = maxFieldManager - 17 // of a longer name, before a "-" and 16 digits
)

// ConditionType returns the type of the condition that the reporter on a node writes.
func ConditionType(node string) string { return ConditionTypePrefix + node }

// NodeOf returns the node of a reporter's condition type, and whether it is one.
func NodeOf(conditionType string) (node string, ok bool) {
	node, ok = strings.CutPrefix(conditionType, ConditionTypePrefix)
	return node, ok && node != ""
}

// KeyIDOfSocket is the {keyID} of a socket, or its endpoint, named kms-{keyID}.sock, as OpenShift
// names them; empty for any other.
func KeyIDOfSocket(socket string) string {
	id, prefixed := strings.CutPrefix(strings.TrimPrefix(path.Base(socket), "@"), "kms-")
	id, suffixed := strings.CutSuffix(id, ".sock")
	if !prefixed || !suffixed {
		return ""
	}
	return id
}

// ConditionManager returns the Server-Side Apply field manager under which a node's condition is written: at most 128
// bytes; a longer name ends in a hash of the whole, so that two long names never share a manager.
func ConditionManager(node string) string {
	name := fieldManagerPrefix + node
	if len(name) <= maxFieldManager {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", name[:cutFieldManager], sum[:8])
}

// WritesFor reports whether a manager may be that of a node's condition. Of one that was cut the policy sees the start.
func WritesFor(manager, node string) bool {
	return manager == ConditionManager(node) || len(manager) == maxFieldManager &&
		strings.HasPrefix(fieldManagerPrefix+node, manager[:cutFieldManager])
}

// FileHash identifies a file by its bytes, as 64 hex digits.
func FileHash(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// ValidPodUID reports whether a text has the form of a pod's UID: 1 to 63 letters, digits and '-', with a letter or
// digit at both ends. It is a UUID, or the 32 hexadecimal digits that the kubelet computes for a static pod.
//
// The downward API (metadata.uid) gives a container the UID that its kubelet knows the pod by. For a static pod that
// is never the mirror pod's metadata.uid: it is the manifest's own (OpenShift's installer sets one), or a hash of
// manifest, node and path, which changes with the manifest. The mirror pod's annotation kubernetes.io/config.hash has
// it (applyDefaults in k8s.io/kubernetes/pkg/kubelet/config).
func ValidPodUID(uid string) bool { return IsWord(uid, "-") }

// IsWord reports whether a text is 1 to 63 letters, digits and the other characters given, with a
// letter or digit at both ends. (A regular expression would be compiled at each start.)
func IsWord(text, other string) bool {
	const most = 63
	return text != "" && len(text) <= most && strings.Trim(text, other) == text &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(other, r)
		})
}
