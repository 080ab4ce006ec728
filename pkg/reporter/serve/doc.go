// Package serve serves a reporter's state over HTTP: /healthz, /readyz, /kms-providers with
// a check per plugin, and /metrics.
//
// It is read-only, and no failure ends it. If the key pair is invalid, the last valid one is
// used; if the client CAs are invalid, no client is trusted.
package serve
