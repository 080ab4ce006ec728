// Package metric makes Prometheus metrics of the rows of contract's tables.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Gauge is a gauge without labels.
func Gauge(m contract.Metric) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(opts(m)))
}

// GaugeVec is a gauge with labels.
func GaugeVec(m contract.Metric) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts(m)), m.Labels)
}

// CounterVec is a counter with labels.
func CounterVec(m contract.Metric) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(opts(m)), m.Labels)
}

// Desc is for a collector of its own.
func Desc(m contract.Metric) *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}

// Info is 1, with these labels: all that the row has.
func Info(m contract.Metric, labels prometheus.Labels) prometheus.Collector {
	g := GaugeVec(m)
	g.With(labels).Set(1)
	return g
}

func opts(m contract.Metric) prometheus.Opts { return prometheus.Opts{Name: m.Name, Help: m.Help} }
