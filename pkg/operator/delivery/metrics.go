package delivery

import (
	"github.com/prometheus/client_golang/prometheus"
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
		syncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kms_health_operator_syncs_total",
			Help: "Syncs of a target from observed to desired state.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_operator_errors_total",
			Help: "Syncs that failed, by target.",
		}, []string{"target"}),
		delivered: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_operator_delivered",
			Help: "1 when a target's reporters are where they should be, 0 otherwise, by target, delivery and reason.",
		}, []string{"target", "delivery", "reason"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_operator_credential_expiry_timestamp_seconds",
			Help: "When a reporter's credential in a Secret expires, by target and Secret.",
		}, []string{"target", "secret"}),
		renewal: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_operator_credential_renewal_timestamp_seconds",
			Help: "When a reporter's credential in a Secret is due to be renewed, by target and Secret: in the past while that fails.",
		}, []string{"target", "secret"}),
	}
	registry.MustRegister(m.syncs, m.errors, m.delivered, m.expiry, m.renewal)
	return m
}

func (m *metrics) deliver(target, delivery string, s Status) {
	m.errors.WithLabelValues(target) // 0 until there is one
	m.delivered.DeletePartialMatch(prometheus.Labels{"target": target})
	value := 0.0
	if s.Condition() == "True" {
		value = 1
	}
	m.delivered.WithLabelValues(target, delivery, string(s.Reason)).Set(value)
}

// credentials shows when credentials expire and are due. While a target is delivered, the
// outcome has all of its credentials; otherwise those that it does not have stay as they
// were.
func (m *metrics) credentials(target string, o *Outcome) {
	if o.Status.Condition() == "True" && o.Status.Reason != Unmanaged {
		m.forgetCredentials(target)
	}
	for secret, at := range o.Expiries {
		m.expiry.WithLabelValues(target, secret).Set(float64(at.Unix()))
		m.renewal.WithLabelValues(target, secret).Set(float64(o.Renewals[secret].Unix()))
	}
}

func (m *metrics) forgetCredentials(target string) {
	m.expiry.DeletePartialMatch(prometheus.Labels{"target": target})
	m.renewal.DeletePartialMatch(prometheus.Labels{"target": target})
}

// forget removes the series of a target that is gone.
func (m *metrics) forget(target string) {
	m.delivered.DeletePartialMatch(prometheus.Labels{"target": target})
	m.forgetCredentials(target)
}
