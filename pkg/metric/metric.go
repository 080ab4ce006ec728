// Package metric creates Prometheus metrics from the rows of contract's tables.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kms-health/kms-health/pkg/contract"
)

// GaugeVec registers a gauge.
func GaugeVec(registry prometheus.Registerer, m contract.Metric) *prometheus.GaugeVec {
	return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts(opts(m)), m.Labels)
}

// CounterVec registers a counter.
func CounterVec(registry prometheus.Registerer, m contract.Metric) *prometheus.CounterVec {
	return promauto.With(registry).NewCounterVec(prometheus.CounterOpts(opts(m)), m.Labels)
}

// Desc describes a metric for a custom collector.
func Desc(m contract.Metric) *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}

func opts(m contract.Metric) prometheus.Opts { return prometheus.Opts{Name: m.Name, Help: m.Help} }
