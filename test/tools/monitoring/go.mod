// Prometheus's operator, for its CRDs.
// A module of its own, so that nothing here reaches the product's dependencies.
module github.com/kms-health/kms-health/test/tools/monitoring

go 1.26.0

tool github.com/prometheus-operator/prometheus-operator/pkg/versionutil

require (
	github.com/alecthomas/kingpin/v2 v2.4.0 // indirect
	github.com/alecthomas/units v0.0.0-20240927000941-0f3dac36c52b // indirect
	github.com/prometheus-operator/prometheus-operator v0.85.0 // indirect
	github.com/prometheus/common v0.65.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	github.com/xhit/go-str2duration/v2 v2.1.0 // indirect
)
