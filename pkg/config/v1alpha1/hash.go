package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// PluginSetHash identifies a plugin set, as 64 hex digits: the sockets and their
// keyIDs, in any order. Roles and timeouts are no part of it: a reporter follows
// those without being replaced.
func PluginSetHash(plugins []Plugin) string {
	type member struct{ KeyID, Endpoint string }
	set := make([]member, len(plugins))
	for i, p := range plugins {
		set[i] = member{p.KeyID, p.Endpoint}
	}
	slices.SortFunc(set, func(a, b member) int {
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
