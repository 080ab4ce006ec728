package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/operator/target"
)

// metrics are the operator's own.
type metrics struct {
	configuration prometheus.Gauge
	passes        prometheus.Counter
	errors        *prometheus.CounterVec
	changes       *prometheus.CounterVec
	delivered     *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		configuration: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_operator_configuration_valid",
			Help: "1 when the configuration file was taken as it is now, 0 when an earlier one is in force, or none.",
		}),
		passes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kms_health_operator_passes_total",
			Help: "How often everything was looked at.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_operator_errors_total",
			Help: "How often a target could not be made what it should be, by target; empty: all of them.",
		}, []string{"target"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_operator_changes_total",
			Help: "Changes that the operator made or found, by target and reason.",
		}, []string{"target", "reason"}),
		delivered: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_operator_delivered",
			Help: "1 when a target's reporters are where they should be, 0 otherwise, by target, delivery and reason.",
		}, []string{"target", "delivery", "reason"}),
	}
	registry.MustRegister(m.configuration, m.passes, m.errors, m.changes, m.delivered)
	return m
}

func (m *metrics) observe(name, delivery string, s target.Status) {
	m.delivered.DeletePartialMatch(prometheus.Labels{"target": name})
	value := 0.0
	if s.Status == "True" {
		value = 1
	}
	m.delivered.WithLabelValues(name, delivery, s.Reason).Set(value)
}
