package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
			text += "kms_health_operator_credential_renewal_timestamp_seconds{secret=\"" + s + "\",target=\"api\"} 1000\n"
		}
		if text != "" {
			text = "# HELP kms_health_operator_credential_renewal_timestamp_seconds When a reporter's credential in a Secret is due to be renewed, by target and Secret: in the past while that fails.\n" +
				"# TYPE kms_health_operator_credential_renewal_timestamp_seconds gauge\n" + text
		}
		return text
	}
	for _, step := range []struct {
		name    string
		outcome *Outcome
		want    string
	}{
		{"delivered", outcome(SocketsInPods, "a", "b"), series("a", "b")},
		{"one Secret is not used any more", outcome(SocketsInPods, "a"), series("a")},
		{"a sync that ended before the credentials", outcome(SourceUnreadable), series("a")},
		{"a switch to another credential", outcome(Progressing, "c"), series("a", "c")},
		{"a renewal that fails", outcome(RenewalFailed, "a"), series("a", "c")},
		{"unmanaged, and nothing to renew now", outcome(Unmanaged), series("a", "c")},
		{"bound tokens", outcome(SocketsInPods), ""},
	} {
		m.credentials("api", step.outcome)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(step.want), "kms_health_operator_credential_renewal_timestamp_seconds"); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	m.credentials("api", outcome(SocketsInPods, "a"))
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
	m.deliver("api", "Companion", Status{Reason: SocketsInPods})
	const want = `# HELP kms_health_operator_errors_total Syncs that failed, by target.
# TYPE kms_health_operator_errors_total counter
kms_health_operator_errors_total{target="api"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kms_health_operator_errors_total"); err != nil {
		t.Error(err)
	}
}
