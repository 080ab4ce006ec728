package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
)

// The alert on a renewal that is overdue must not go on about a Secret that is not used
// any more.
func TestMetricsHaveTheCredentialsInUse(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	outcome := func(reason Reason, secrets ...string) *Outcome {
		o := &Outcome{Status: Status{Reason: reason}, Expiries: map[string]time.Time{}, Renewals: map[string]time.Time{}}
		for _, s := range secrets {
			o.Expiries[s], o.Renewals[s] = time.Unix(2000, 0), time.Unix(1000, 0)
		}
		return o
	}
	series := func(secrets ...string) string {
		text := ""
		for _, s := range secrets {
			text += "kms_health_operator_credential_renewal_timestamp_seconds{api_server=\"api\",secret=\"" + s + "\"} 1000\n"
		}
		if text != "" {
			text = head(contract.MetricCredentialRenewal) + text
		}
		return text
	}
	for _, step := range []struct {
		name    string
		outcome *Outcome
		want    string
	}{
		{"delivered", outcome(contract.AsExpected, "a", "b"), series("a", "b")},
		{"one Secret is not used any more", outcome(contract.AsExpected, "a"), series("a")},
		{"a sync that ended before the credentials", outcome(contract.SourceUnreadable), series("a")},
		{"a switch to another credential", outcome(contract.Progressing, "c"), series("a", "c")},
		{"a renewal that fails", outcome(contract.RenewalFailed, "a"), series("a", "c")},
		{"unmanaged, and nothing to renew now", outcome(contract.Unmanaged), series("a", "c")},
		{"bound tokens", outcome(contract.AsExpected), ""},
	} {
		m.credentials("api", step.outcome)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(step.want), "kms_health_operator_credential_renewal_timestamp_seconds"); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	m.credentials("api", outcome(contract.AsExpected, "a"))
	m.forget("api")
	if n, err := testutil.GatherAndCount(registry, "kms_health_operator_credential_expiry_timestamp_seconds"); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// increase() does not see a counter's first value, and a panel without errors is not to be
// a panel without data.
func TestErrorsOfATargetAreCountedFromZero(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.deliver("api", "CompanionPod", Status{Reason: contract.AsExpected})
	want := head(contract.MetricErrors) + `kms_health_operator_errors_total{api_server="api"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kms_health_operator_errors_total"); err != nil {
		t.Error(err)
	}
}

// head is the beginning of a metric in the text format.
func head(m contract.Metric) string {
	return "# HELP " + m.Name + " " + m.Help + "\n# TYPE " + m.Name + " " + m.Type + "\n"
}
