// Package serve shows a reporter's state over HTTP: /healthz, /readyz,
// /kms-providers with a check per plugin, and /metrics.
//
// It only shows. A port that is taken or a certificate that cannot be read is
// logged once, counted, and tried again; the reporter goes on without.
package serve
