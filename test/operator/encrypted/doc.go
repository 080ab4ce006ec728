// Package encrypted tests the operator with an API server whose own Secrets and ConfigMaps are
// encrypted by a plugin that becomes unhealthy, and which restarts.
package encrypted
