package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

const (
	// ConditionTypePrefix begins the type of every reporter's condition; the
	// node's name follows. The type ends in none of the suffixes that an
	// operator's StatusSyncer unites (Available, Degraded, Progressing,
	// Upgradeable), so a single node's report never moves a cluster operator.
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
)

// ConditionType returns the type of the condition that the reporter on a node
// writes.
func ConditionType(node string) string { return ConditionTypePrefix + node }

// NodeOf returns the node of a reporter's condition type, and whether it is one.
func NodeOf(conditionType string) (node string, ok bool) {
	if node, ok = strings.CutPrefix(conditionType, ConditionTypePrefix); !ok {
		return "", false
	}
	return node, node != ""
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

// ConditionManager returns the Server-Side Apply field manager under which a
// node's condition is written: at most 128 bytes; a longer name ends in a hash
// of the whole, so that two long names never share a manager.
func ConditionManager(node string) string {
	name := fieldManagerPrefix + node
	if len(name) <= maxFieldManager {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return name[:maxFieldManager-len(suffix)] + suffix
}

// NativeManager is the field manager of OpenShift's own reporter on a node.
func NativeManager(node string) string {
	return fmt.Sprintf("%s%x", fieldManagerPrefix, sha256.Sum256([]byte(node)))
}
