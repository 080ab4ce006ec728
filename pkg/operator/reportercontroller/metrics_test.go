package reportercontroller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

// The alert on an overdue renewal must end when the Secret is no longer used.
func TestMetricsHaveTheTokenInUse(t *testing.T) {
	const name = "kms_health_operator_credential_renewal_timestamp_seconds"
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	series := head(contract.MetricCredentialRenewal) + name +
		"{api_server=\"api\",secret=\"kms-health-reporter-api-token\"} 1000\n"
	for _, step := range []struct {
		name   string
		reason delivery.Reason
		token  bool
		want   string
	}{
		{"delivered", contract.AsExpected, true, series},
		{"a sync that ended before the token", contract.SourceUnreadable, false, series},
		{"a renewal that fails", contract.RequestFailed, true, series},
		{"unmanaged, and nothing to renew now", contract.Unmanaged, false, series},
		{"bound tokens", contract.AsExpected, false, ""},
	} {
		o := &Result{Status: delivery.Status{Reason: step.reason}}
		if step.token {
			o.Token = validity{time.Unix(2000, 0), time.Unix(1000, 0)}
		}
		m.set("api", o)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(step.want), name); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	m.set("api", &Result{Token: validity{notAfter: time.Unix(2000, 0)}})
	m.forget("api")
	if n, err := testutil.GatherAndCount(registry, "kms_health_operator_credential_expiry_timestamp_seconds"); n != 0 ||
		err != nil {
		t.Error(n, err)
	}
}

// increase() does not see a counter's first value. A panel without errors must not be a panel without data.
func TestErrorsOfATargetAreCountedFromZero(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.set("api", &Result{Status: delivery.Status{Reason: contract.AsExpected, Message: "delivered"}})
	want := head(contract.MetricErrors) + `kms_health_operator_errors_total{api_server="api"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"kms_health_operator_errors_total"); err != nil {
		t.Error(err)
	}
}

// head returns the lines HELP and TYPE of a metric in the text format.
func head(m contract.Metric) string {
	return "# HELP " + m.Name + " " + m.Help + "\n# TYPE " + m.Name + " " + m.Type + "\n"
}
