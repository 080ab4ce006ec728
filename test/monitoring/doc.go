// Package monitoring tests the alerts, the dashboard, and the pages of docs/reference that
// list alerts and metrics.
//
// promtool evaluates the alerts on the series in testdata/alerts.yaml, and on series that
// were recorded from a real kube-apiserver, in testdata/kube-apiserver.yaml. `make promtool`
// builds promtool.
package monitoring
