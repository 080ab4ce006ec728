package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
)

// metrics of the deliveries.
type metrics struct {
	syncs     prometheus.Counter
	errors    *prometheus.CounterVec
	delivered *prometheus.GaugeVec
	expiry    *prometheus.GaugeVec
	renewal   *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		syncs:     metric.Counter(contract.MetricSyncs),
		errors:    metric.CounterVec(contract.MetricErrors),
		delivered: metric.GaugeVec(contract.MetricDelivered),
		expiry:    metric.GaugeVec(contract.MetricCredentialExpiry),
		renewal:   metric.GaugeVec(contract.MetricCredentialRenewal),
	}
	registry.MustRegister(m.syncs, m.errors, m.delivered, m.expiry, m.renewal)
	return m
}

func (m *metrics) deliver(target, delivery string, s Status) {
	m.errors.WithLabelValues(target) // 0 until there is one
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	value := 0.0
	if s.Delivered() {
		value = 1
	}
	m.delivered.WithLabelValues(target, delivery, string(s.Reason)).Set(value)
}

// credentials shows when credentials expire and are due. While a target is delivered, the
// outcome has all of its credentials; otherwise those that it does not have stay as they
// were.
func (m *metrics) credentials(target string, o *Outcome) {
	if o.Status.Delivered() && o.Status.Reason != contract.Unmanaged {
		m.forgetCredentials(target)
	}
	for secret, at := range o.Expiries {
		m.expiry.WithLabelValues(target, secret).Set(float64(at.Unix()))
		m.renewal.WithLabelValues(target, secret).Set(float64(o.Renewals[secret].Unix()))
	}
}

func (m *metrics) forgetCredentials(target string) {
	m.expiry.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.renewal.DeletePartialMatch(prometheus.Labels{"api_server": target})
}

// forget removes the series of a target that is gone.
func (m *metrics) forget(target string) {
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.forgetCredentials(target)
}
