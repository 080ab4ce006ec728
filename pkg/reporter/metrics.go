package reporter

import (
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metric"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// metrics are those of the loop; the other packages add their own.
type metrics struct {
	reloads, configGood, configSince, configInfo, configExpected, outputErrors *metric.Metric

	set *metric.Set
	// The following are by plugin.
	probes, probeDuration, lastProbe, pluginStatus, pluginReason, notProbed, roundTrips, tripDuration *metric.Metric
}

// The results of reading the configuration file.
const (
	reloadApplied    = "applied"
	reloadInvalid    = "invalid"
	reloadUnreadable = "unreadable"
)

func newMetrics(set *metric.Set) *metrics {
	durations := []float64{.001, .005, .025, .1, .5, 2, 10}
	m := &metrics{
		set:            set,
		reloads:        set.New(contract.MetricReloads),
		configGood:     set.New(contract.MetricReloadGood),
		configSince:    set.New(contract.MetricConfigApplied),
		configInfo:     set.New(contract.MetricConfig),
		configExpected: set.New(contract.MetricConfigExpected),
		outputErrors:   set.New(contract.MetricOutputErrors),
		probes:         set.New(contract.MetricProbes),
		probeDuration:  set.New(contract.MetricProbeDuration, durations...),
		lastProbe:      set.New(contract.MetricLastProbe),
		pluginStatus:   set.New(contract.MetricReporterPluginStatus),
		pluginReason:   set.New(contract.MetricReporterPluginReason),
		notProbed:      set.New(contract.MetricProbeFailures),
		roundTrips:     set.New(contract.MetricRoundTrips),
		tripDuration:   set.New(contract.MetricRoundTripDuration, durations...),
	}
	m.configExpected.Set(1)
	for _, result := range []string{reloadApplied, reloadInvalid, reloadUnreadable} {
		m.reloads.Add(0, result) // a rate needs the zero before the one
	}
	return m
}

// seconds is a time as Prometheus has it.
func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func (m *metrics) observe(keyID string, r probe.Result) {
	if r.NotProbed != "" {
		m.notProbed.Add(1, keyID)
		return
	}
	status := string(r.Status)
	if r.Gone {
		status = "gone"
	}
	m.probes.Add(1, keyID, status)
	m.probeDuration.Observe(r.Took.Seconds(), keyID)
	m.lastProbe.Set(seconds(r.At), keyID)
}

func (m *metrics) show(e contract.Entry) {
	for _, s := range []contract.Status{contract.Healthy, contract.Unhealthy, contract.Error} {
		value := 0.0
		if s == e.Status {
			value = 1
		}
		m.pluginStatus.Set(value, e.KeyID, string(s))
	}
	m.pluginReason.Delete("key_id", e.KeyID)
	if e.Reason != "" {
		m.pluginReason.Set(1, e.KeyID, string(e.Reason))
	}
}

func (m *metrics) observeTrip(keyID string, t probe.Trip) {
	result := "ok"
	switch {
	case !t.Made:
		result = "skipped"
	case t.Status != contract.Healthy:
		result = "failed"
	}
	m.roundTrips.Add(1, keyID, result)
	if t.Made {
		m.tripDuration.Observe(t.Took.Seconds(), keyID)
	}
}

// forget deletes the series of a plugin that is no longer configured.
func (m *metrics) forget(keyID string) { m.set.Delete("key_id", keyID) }
