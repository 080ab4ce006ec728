// Package monitoring tests what is monitored: the alerts, the dashboard, and the pages of
// docs/reference that list alerts and metrics.
//
// The alerts are evaluated by promtool, on series that testdata/alerts.yaml writes down,
// and on those that testdata/kube-apiserver.yaml has recorded from a real kube-apiserver.
// promtool is built by `make promtool`.
package monitoring
