package reporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// metrics are those of the loop; the other packages register their own.
type metrics struct {
	reloads        *prometheus.CounterVec
	configGood     prometheus.Gauge
	configSince    prometheus.Gauge
	configInfo     *prometheus.GaugeVec
	configExpected prometheus.Gauge
	outputErrors   prometheus.Counter

	// The following are by plugin.
	probes        *prometheus.CounterVec
	probeDuration *prometheus.HistogramVec
	lastProbe     *prometheus.GaugeVec
	pluginStatus  *prometheus.GaugeVec
	pluginReason  *prometheus.GaugeVec
	notProbed     *prometheus.CounterVec
	roundTrips    *prometheus.CounterVec
	tripDuration  *prometheus.HistogramVec
}

// The results of reading the configuration file.
const (
	reloadApplied    = "applied"
	reloadInvalid    = "invalid"
	reloadUnreadable = "unreadable"
)

func newMetrics(registry prometheus.Registerer) *metrics {
	durations := []float64{.001, .005, .025, .1, .5, 2, 10}
	m := &metrics{
		reloads:        metric.CounterVec(contract.MetricReloads),
		configGood:     metric.Gauge(contract.MetricReloadGood),
		configSince:    metric.Gauge(contract.MetricConfigApplied),
		configInfo:     metric.GaugeVec(contract.MetricConfig),
		configExpected: metric.Gauge(contract.MetricConfigExpected),
		outputErrors:   metric.Counter(contract.MetricOutputErrors),
		probes:         metric.CounterVec(contract.MetricProbes),
		probeDuration:  metric.HistogramVec(contract.MetricProbeDuration, durations...),
		lastProbe:      metric.GaugeVec(contract.MetricLastProbe),
		pluginStatus:   metric.GaugeVec(contract.MetricReporterPluginStatus),
		pluginReason:   metric.GaugeVec(contract.MetricReporterPluginReason),
		notProbed:      metric.CounterVec(contract.MetricProbeFailures),
		roundTrips:     metric.CounterVec(contract.MetricRoundTrips),
		tripDuration:   metric.HistogramVec(contract.MetricRoundTripDuration, durations...),
	}
	registry.MustRegister(m.probes, m.probeDuration, m.lastProbe, m.pluginStatus, m.pluginReason, m.notProbed,
		m.roundTrips, m.tripDuration,
		m.reloads, m.configGood, m.configSince, m.configInfo, m.configExpected, m.outputErrors)
	m.configExpected.Set(1)
	for _, result := range []string{reloadApplied, reloadInvalid, reloadUnreadable} {
		m.reloads.WithLabelValues(result) // a rate needs the zero before the one
	}
	return m
}

func (m *metrics) observe(keyID string, r probe.Result) {
	if r.NotProbed != "" {
		m.notProbed.WithLabelValues(keyID).Inc()
		return
	}
	status := string(r.Status)
	if r.Gone {
		status = "gone"
	}
	m.probes.WithLabelValues(keyID, status).Inc()
	m.probeDuration.WithLabelValues(keyID).Observe(r.Took.Seconds())
	m.lastProbe.WithLabelValues(keyID).Set(float64(r.At.UnixMilli()) / 1000)
}

func (m *metrics) show(e contract.Entry) {
	for _, s := range []contract.Status{contract.Healthy, contract.Unhealthy, contract.Error} {
		value := 0.0
		if s == e.Status {
			value = 1
		}
		m.pluginStatus.WithLabelValues(e.KeyID, string(s)).Set(value)
	}
	m.pluginReason.DeletePartialMatch(prometheus.Labels{"key_id": e.KeyID})
	if e.Reason != "" {
		m.pluginReason.WithLabelValues(e.KeyID, string(e.Reason)).Set(1)
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
	m.roundTrips.WithLabelValues(keyID, result).Inc()
	if t.Made {
		m.tripDuration.WithLabelValues(keyID).Observe(t.Took.Seconds())
	}
}

// forget deletes the series of a plugin that is no longer configured.
func (m *metrics) forget(keyID string) {
	for _, byPlugin := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.probes, m.probeDuration, m.lastProbe, m.pluginStatus, m.pluginReason, m.notProbed, m.roundTrips, m.tripDuration} {
		byPlugin.DeletePartialMatch(prometheus.Labels{"key_id": keyID})
	}
}
