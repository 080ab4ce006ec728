package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Socket is a plugin's socket and the key ID that it serves.
type Socket struct{ KeyID, Endpoint string }

// ConfigHash identifies a plugin set, as 64 hex digits: its sockets, in any order. Roles and
// timeouts are no part of it: a reporter follows those without being replaced.
func ConfigHash(sockets []Socket) string {
	set := slices.Clone(sockets)
	slices.SortFunc(set, func(a, b Socket) int {
		return strings.Compare(a.KeyID+"\x00"+a.Endpoint, b.KeyID+"\x00"+b.Endpoint)
	})
	raw, err := json.Marshal(set)
	if err != nil {
		panic(err) // strings always marshal
	}
	return FileHash(raw)
}

// FileHash identifies a file by its bytes, as 64 hex digits.
func FileHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ConfigMapName is that of the reporter's file for one plugin set. It changes with the set,
// since a pod's file must name no socket that the pod does not have.
func ConfigMapName(apiServer, configHash string) string {
	const digits = 10
	return ReporterName(apiServer) + "-" + configHash[:digits]
}
