// Package serve shows a reporter's state over HTTP: /healthz, /readyz,
// /kms-providers with a check per plugin, and /metrics.
//
// It only shows, and nothing around it ends it. A port that is taken, and an accept
// that fails, are logged, counted, and tried again. A key pair that cannot be used
// leaves the last good one in use; client CAs that cannot be used mean that no client
// is trusted. At most 64 connections are open, whoever opens them.
package serve
