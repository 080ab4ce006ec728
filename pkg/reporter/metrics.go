package reporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// metrics are those of the loop; the other packages register their own.
type metrics struct {
	pluginMetrics

	reloads     *prometheus.CounterVec
	configGood  prometheus.Gauge
	configSince prometheus.Gauge
	configInfo  *prometheus.GaugeVec

	configExpected prometheus.Gauge

	outputErrors prometheus.Counter
}

// pluginMetrics are those by plugin.
type pluginMetrics struct {
	probes        *prometheus.CounterVec
	probeDuration *prometheus.HistogramVec
	lastProbe     *prometheus.GaugeVec
	pluginStatus  *prometheus.GaugeVec
	pluginReason  *prometheus.GaugeVec
	reasons       map[string]health.Reason // that pluginReason shows, by keyID
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

var statuses = []health.Status{health.Healthy, health.Unhealthy, health.Error}

func newMetrics(registry prometheus.Registerer, watching func() float64) *metrics {
	m := &metrics{
		pluginMetrics: newPluginMetrics(),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_config_reloads_total",
			Help: "Changes of the configuration file by result: applied, invalid, or unreadable; the last good one stays in force after the latter two.",
		}, []string{"result"}),
		configGood: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_reporter_config_last_reload_successful",
			Help: "1 when the configuration file, as it is now, is in force.",
		}),
		configSince: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_reporter_config_applied_timestamp_seconds",
			Help: "When the configuration in force was applied, in seconds since the epoch.",
		}),
		configInfo: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_config_info",
			Help: "1, with the SHA-256 of the configuration file in force.",
		}, []string{"sha256"}),
		configExpected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_reporter_config_expected",
			Help: "1 when the configuration in force is the one that the pod was made for, or it was made for any; 0 when it is another.",
		}),
		outputErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kms_health_reporter_output_errors_total",
			Help: "Failed writes to --output.",
		}),
	}
	registry.MustRegister(m.probes, m.probeDuration, m.lastProbe, m.pluginStatus, m.pluginReason, m.notProbed, m.roundTrips, m.tripDuration,
		m.reloads, m.configGood, m.configSince, m.configInfo, m.configExpected, m.outputErrors,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kms_health_reporter_config_watch_active",
			Help: "1 when events report changes of the configuration file; 0 when it is only read every 10 seconds.",
		}, watching))
	m.configExpected.Set(1)
	for _, result := range []string{reloadApplied, reloadInvalid, reloadUnreadable} {
		m.reloads.WithLabelValues(result) // a rate needs the zero before the one
	}
	return m
}

func newPluginMetrics() pluginMetrics {
	return pluginMetrics{
		reasons: map[string]health.Reason{},
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_probes_total",
			Help: "Probes by plugin and verdict: healthy, unhealthy, error, or gone where there is nothing to observe.",
		}, []string{"key_id", "status"}),
		probeDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kms_health_reporter_probe_duration_seconds",
			Help:    "How long probes took, all checks of a plugin together.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2, 10},
		}, []string{"key_id"}),
		lastProbe: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_last_probe_timestamp_seconds",
			Help: "When a plugin was last probed, in seconds since the epoch.",
		}, []string{"key_id"}),
		pluginStatus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_plugin_status",
			Help: "1 for the verdict on a plugin, that of the round trip included, 0 for the others.",
		}, []string{"key_id", "status"}),
		pluginReason: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_plugin_reason",
			Help: "1, with the reason of a plugin that is not healthy; no series while it is.",
		}, []string{"key_id", "reason"}),
		notProbed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_probe_failures_total",
			Help: "Probes that the reporter itself could not make, for want of descriptors or memory. They do not depend on the plugin's health.",
		}, []string{"key_id"}),
		roundTrips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_round_trips_total",
			Help: "Round trips by plugin and result: ok, failed, or skipped where nothing could be encrypted or decrypted.",
		}, []string{"key_id", "result"}),
		tripDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kms_health_reporter_round_trip_duration_seconds",
			Help:    "How long round trips took, all calls together; without those that were skipped.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2, 10},
		}, []string{"key_id"}),
	}
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

// show sets the gauges to the verdict on a plugin, that of the round trip included.
func (m *metrics) show(e health.Entry) {
	for _, s := range statuses {
		value := 0.0
		if s == e.Status {
			value = 1
		}
		m.pluginStatus.WithLabelValues(e.KeyID, string(s)).Set(value)
	}
	if before := m.reasons[e.KeyID]; before != e.Reason {
		m.pluginReason.DeleteLabelValues(e.KeyID, string(before))
	}
	if m.reasons[e.KeyID] = e.Reason; e.Reason != "" {
		m.pluginReason.WithLabelValues(e.KeyID, string(e.Reason)).Set(1)
	}
}

func (m *metrics) observeTrip(keyID string, t probe.Trip) {
	result := "ok"
	switch {
	case !t.Made:
		result = "skipped"
	case t.Status != health.Healthy:
		result = "failed"
	}
	m.roundTrips.WithLabelValues(keyID, result).Inc()
	if t.Made {
		m.tripDuration.WithLabelValues(keyID).Observe(t.Took.Seconds())
	}
}

// forget deletes the series of a plugin that is no longer configured.
func (m *metrics) forget(keyID string) {
	of := prometheus.Labels{"key_id": keyID}
	m.probes.DeletePartialMatch(of)
	m.probeDuration.DeletePartialMatch(of)
	m.lastProbe.DeletePartialMatch(of)
	m.pluginStatus.DeletePartialMatch(of)
	m.pluginReason.DeletePartialMatch(of)
	delete(m.reasons, keyID)
	m.notProbed.DeletePartialMatch(of)
	m.roundTrips.DeletePartialMatch(of)
	m.tripDuration.DeletePartialMatch(of)
}
