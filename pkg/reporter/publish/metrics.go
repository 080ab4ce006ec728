package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
)

// Metrics counts the results of writes. All publishers of a process share one Metrics; one
// of them runs at a time.
type Metrics struct {
	writes    *prometheus.CounterVec
	lastWrite *prometheus.GaugeVec
	duration  prometheus.Histogram
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes:    metric.CounterVec(contract.MetricWrites),
		lastWrite: metric.GaugeVec(contract.MetricLastWrite),
		duration:  metric.Histogram(contract.MetricWriteDuration, .005, .025, .1, .5, 2, 10),
	}
	registry.MustRegister(m.writes, m.lastWrite, m.duration)
	return m
}
