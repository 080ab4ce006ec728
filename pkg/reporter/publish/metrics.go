package publish

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the results of writes. All publishers of a process share one Metrics; at
// most one publisher of each form runs at a time.
type Metrics struct {
	writes    *prometheus.CounterVec
	lastWrite *prometheus.GaugeVec
	duration  *prometheus.HistogramVec
	active    *prometheus.Desc

	mu      sync.Mutex
	current map[Form]*Publisher
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_writes_total",
			Help: "Writes to the operator resource, by form and result.",
		}, []string{"form", "result"}),
		lastWrite: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_last_successful_write_timestamp_seconds",
			Help: "When the operator resource last took a write, by form, in seconds since the epoch.",
		}, []string{"form"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kms_health_reporter_write_duration_seconds",
			Help:    "How long writes to the operator resource took, all servers that were tried together, by form.",
			Buckets: []float64{.005, .025, .1, .5, 2, 10},
		}, []string{"form"}),
		active: prometheus.NewDesc("kms_health_reporter_server_active",
			"1 for the API server that reports are written through, 0 for the others that are configured, by form.",
			[]string{"form", "server"}, nil),
		current: map[Form]*Publisher{},
	}
	registry.MustRegister(m.writes, m.lastWrite, m.duration, servers{m})
	return m
}

// add makes a publisher the current one of its form.
func (m *Metrics) add(p *Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current[p.config.Form] = p
}

// remove removes a publisher that has ended, unless another one replaced it.
func (m *Metrics) remove(p *Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current[p.config.Form] == p {
		delete(m.current, p.config.Form)
		m.lastWrite.DeleteLabelValues(string(p.config.Form))
	}
}

// servers exports the servers of the current publishers: those of an earlier
// configuration have no series.
type servers struct{ *Metrics }

// Describe implements prometheus.Collector.
func (s servers) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- s.active }

// Collect implements prometheus.Collector.
func (s servers) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for form, p := range s.current {
		names, active := p.serverNames()
		for i, name := range names {
			value := 0.0
			if i == active {
				value = 1
			}
			metrics <- prometheus.MustNewConstMetric(s.active, prometheus.GaugeValue, value, string(form), name)
		}
	}
}
