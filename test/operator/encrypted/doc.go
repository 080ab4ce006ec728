// Package encrypted tests the operator while the plugin that encrypts the Secrets and ConfigMaps
// of its API server becomes unhealthy, and while that API server restarts.
package encrypted
