package reporter

import (
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// The results of reading the configuration file.
const (
	reloadApplied    = "applied"
	reloadInvalid    = "invalid"
	reloadUnreadable = "unreadable"
)

func (r *Reporter) countProbe(keyID string, result probe.Result) {
	if result.NotProbed != "" {
		r.metrics.Add(contract.MetricProbeFailures, 1, keyID)
		return
	}
	status := string(result.Status)
	if result.Gone {
		status = "gone"
	}
	r.metrics.Add(contract.MetricProbes, 1, keyID, status)
	r.metrics.Observe(contract.MetricProbeDuration, result.Took, keyID)
	r.metrics.SetTime(contract.MetricLastProbe, result.At, keyID)
}

func (r *Reporter) countTrip(keyID string, t probe.Trip) {
	result := "ok"
	switch {
	case !t.Made:
		result = "skipped"
	case t.Status != contract.Healthy:
		result = "failed"
	}
	r.metrics.Add(contract.MetricRoundTrips, 1, keyID, result)
	if t.Made {
		r.metrics.Observe(contract.MetricRoundTripDuration, t.Took, keyID)
	}
}

func (r *Reporter) showStatus(e contract.Entry) {
	for _, s := range []contract.Status{contract.Healthy, contract.Unhealthy, contract.Error} {
		value := 0.0
		if s == e.Status {
			value = 1
		}
		r.metrics.Set(contract.MetricReporterPluginStatus, value, e.KeyID, string(s))
	}
	r.metrics.Delete(contract.MetricReporterPluginReason, "key_id", e.KeyID)
	if e.Reason != "" {
		r.metrics.Set(contract.MetricReporterPluginReason, 1, e.KeyID, string(e.Reason))
	}
}

// forget deletes the series of a plugin that is no longer configured.
func (r *Reporter) forget(keyID string) {
	for _, m := range contract.ReporterMetrics {
		r.metrics.Delete(m, "key_id", keyID)
	}
}
