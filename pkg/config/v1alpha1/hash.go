package v1alpha1

import "github.com/kms-health/kms-health/pkg/contract"

// PluginSetHash is the contract.ConfigHash of a plugin set.
func PluginSetHash(plugins []Plugin) string {
	sockets := make([]contract.Socket, len(plugins))
	for i, p := range plugins {
		sockets[i] = contract.Socket{KeyID: p.KeyID, Endpoint: p.Endpoint}
	}
	return contract.ConfigHash(sockets)
}
