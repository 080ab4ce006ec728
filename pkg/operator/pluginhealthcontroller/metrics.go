package pluginhealthcontroller

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var (
	statusDesc    = metric.Desc(contract.MetricPluginStatus)
	ageDesc       = metric.Desc(contract.MetricPluginReportAge)
	reasonDesc    = metric.Desc(contract.MetricPluginReason)
	keyDesc       = metric.Desc(contract.MetricPluginKey)
	lostDesc      = metric.Desc(contract.MetricFormerKeyLost)
	writeKeyDesc  = metric.Desc(contract.MetricWriteKey)
	findingDesc   = metric.Desc(contract.MetricFinding)
	conditionDesc = metric.Desc(contract.MetricCondition)
)

// metrics has series of every target, node and key, so that one scrape has all.
type metrics struct {
	errors *prometheus.CounterVec

	mu      sync.Mutex
	results map[string]shown
}

// shown is a target's last result. now is the time of its evaluation by its own clock, local by the local one.
type shown struct {
	*rollup.Result
	now, local time.Time
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{errors: metric.CounterVec(registry, contract.MetricRollupErrors), results: map[string]shown{}}
	registry.MustRegister(m)
	return m
}

// set keeps a target's last result; nil: it has none.
func (m *metrics) set(target string, r *rollup.Result, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r == nil {
		delete(m.results, target)
		return
	}
	m.results[target] = shown{r, now, time.Now()}
	m.errors.WithLabelValues(target) // 0 until there is one
}

// Describe describes nothing: the registry checks what Collect sends.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent := sets.New[string]() // a registry rejects all where two series are equal
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		if series := fmt.Sprintf("%p %q", d, labels); !sent.Has(series) {
			sent.Insert(series)
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		}
	}
	one := map[bool]float64{true: 1}
	for target, r := range m.results {
		for i := range r.Rows {
			row := &r.Rows[i]
			for _, s := range rollup.States {
				gauge(statusDesc, one[s == row.State], target, row.Node, row.KeyID, string(s))
			}
			if row.State.Unhealthy() && row.Reason != "" {
				reason := string(row.Reason)
				if !row.Reason.Known() { // its writer chooses it
					reason = "Other"
				}
				gauge(reasonDesc, 1, target, row.Node, row.KeyID, reason)
			}
			if !row.Changed.IsZero() {
				age := r.now.Sub(row.Changed) + time.Since(r.local)
				gauge(ageDesc, age.Seconds(), target, row.Node, row.KeyID)
			}
			if row.KEKID != "" {
				gauge(keyDesc, 1, target, row.Node, row.KeyID, contract.CleanDetail(row.KEKID), keyIDHash(row.KEKID))
			}
			for _, kekID := range row.Lost {
				gauge(lostDesc, 1, target, row.Node, row.KeyID, contract.CleanDetail(kekID))
			}
		}
		if key := r.Agreement; r.Conditions[contract.WriteKeyAgreed].Status == operatorstatus.True {
			gauge(writeKeyDesc, 1, target, key.KeyID, contract.CleanDetail(key.KEKID), keyIDHash(key.KEKID))
		}
		for condition, findings := range r.Findings {
			for _, f := range findings { // two containers of a node, for example
				gauge(findingDesc, 1, target, condition, f.Reason, f.Node, f.Key)
			}
		}
		for _, c := range r.Conditions {
			for _, s := range []string{operatorstatus.True, operatorstatus.False, operatorstatus.Unknown} {
				gauge(conditionDesc, one[s == c.Status], target, c.Type, s)
			}
		}
	}
}

// keyIDHash is the label key_id_hash of kube-apiserver's metrics of envelope encryption
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics, getHash).
func keyIDHash(kekID string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(kekID))) }
