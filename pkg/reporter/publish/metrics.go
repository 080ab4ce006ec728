package publish

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
)

// Metrics counts the results of writes. All publishers of a process share one Metrics; one
// of them runs at a time.
type Metrics struct {
	writes    *prometheus.CounterVec
	lastWrite *prometheus.GaugeVec
	duration  prometheus.Histogram
	active    *prometheus.Desc

	mu      sync.Mutex
	current *Publisher // nil: none
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes:    metric.CounterVec(contract.MetricWrites),
		lastWrite: metric.GaugeVec(contract.MetricLastWrite),
		duration:  metric.Histogram(contract.MetricWriteDuration, .005, .025, .1, .5, 2, 10),
		active:    metric.Desc(contract.MetricServerActive),
	}
	registry.MustRegister(m.writes, m.lastWrite, m.duration, servers{m})
	return m
}

// add makes a publisher the current one.
func (m *Metrics) add(p *Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = p
}

// remove removes a publisher that has ended, unless another one replaced it.
func (m *Metrics) remove(p *Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == p {
		m.current = nil
		m.lastWrite.DeleteLabelValues()
	}
}

// servers exports the servers of the current publisher: those of an earlier
// configuration have no series.
type servers struct{ *Metrics }

// Describe implements prometheus.Collector.
func (s servers) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- s.active }

// Collect implements prometheus.Collector.
func (s servers) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return
	}
	names, active := s.current.serverNames()
	for i, name := range names {
		value := 0.0
		if i == active {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(s.active, prometheus.GaugeValue, value, name)
	}
}
