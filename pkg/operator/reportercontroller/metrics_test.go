package reportercontroller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

// The alert on an overdue renewal must end when the Secret is no longer used.
func TestMetricsHaveTheTokenInUse(t *testing.T) {
	const name = "kms_health_operator_credential_renewal_overdue_seconds"
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry, func() time.Time { return time.Unix(1600, 0) })
	series := head(contract.MetricCredentialOverdue) + name +
		"{api_server=\"api\",secret=\"kms-health-reporter-api-token\"} 600\n"
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
	if n, err := testutil.GatherAndCount(registry, "kms_health_operator_credential_remaining_seconds"); n != 0 ||
		err != nil {
		t.Error(n, err)
	}
}

// The API server's clock decides when a token expires. The clock of Prometheus or of this machine may differ by hours.
func TestTokensLifeIsShownByTheAPIServersClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"the API server's clock is this machine's": 0, "it is 7 hours ahead": 7 * time.Hour, "it is 7 hours behind": -7 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewPedanticRegistry()
				now := func() time.Time { return time.Now().Add(ahead) }
				c := New(Options{Registry: registry, Now: now})
				c.metrics.set("api", &Result{Token: halved(now(), now().Add(time.Hour))})
				for _, step := range []struct{ after, remaining, overdue time.Duration }{
					{0, time.Hour, 0},
					{20 * time.Minute, 40 * time.Minute, 0},
					{20 * time.Minute, 20 * time.Minute, 10 * time.Minute},
					{time.Hour, -40 * time.Minute, 70 * time.Minute},
				} {
					time.Sleep(step.after)
					const labels = `{api_server="api",secret="kms-health-reporter-api-token"} `
					remaining, overdue := contract.MetricCredentialRemaining, contract.MetricCredentialOverdue
					want := head(remaining) + remaining.Name + labels + fmt.Sprintln(step.remaining.Seconds()) +
						head(overdue) + overdue.Name + labels + fmt.Sprintln(step.overdue.Seconds())
					if err := testutil.GatherAndCompare(registry, strings.NewReader(want), remaining.Name, overdue.Name); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// increase() does not see a counter's first value. A panel without errors must not be a panel without data.
func TestErrorsOfATargetAreCountedFromZero(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry, time.Now)
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
