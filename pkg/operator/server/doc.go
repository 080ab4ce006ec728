// Package server serves the operator's metrics and health over HTTP.
//
// Metrics are served over HTTPS, with the cluster's TLS profile, to clients that the
// API server authenticates by their bearer token and allows to get the path (RBAC's
// nonResourceURLs). Health is served over HTTP to everyone and shows no details.
package server
