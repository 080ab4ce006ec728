package rollup

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var (
	statusDesc = prometheus.NewDesc("kms_health_plugin_status",
		"1 for the state of a plugin on a node, 0 for the others: healthy, unhealthy, error, stale, skewed, unreadable, missing.",
		[]string{"target", "node", "key_id", "status"}, nil)
	checkedDesc = prometheus.NewDesc("kms_health_plugin_last_checked_timestamp_seconds",
		"When a plugin was last checked, by its node's clock.", []string{"target", "node", "key_id"}, nil)
	reasonDesc = prometheus.NewDesc("kms_health_plugin_reason",
		"1; why a plugin is unhealthy, or an error, by its node's fresh report; "+otherReason+" for a reason that this version does not know.",
		[]string{"target", "node", "key_id", "reason"}, nil)
	keyDesc = prometheus.NewDesc("kms_health_plugin_key_info",
		"1; the remote key that a plugin named last, and its SHA-256 as kube-apiserver's metrics have it.",
		[]string{"target", "node", "key_id", "kek_id", "key_id_hash"}, nil)
	writeKeyDesc = prometheus.NewDesc("kms_health_write_key_info",
		"1 while all API servers of a target write with this key and this remote key; no series while they do not, or while that is not known.",
		[]string{"target", "key_id", "kek_id", "key_id_hash"}, nil)
	findingDesc = prometheus.NewDesc("kms_health_finding",
		"1 for each reason why a condition of a roll-up is as it is, by node and key. A silence that is excused is none.",
		[]string{"target", "condition", "reason", "node", "key_id"}, nil)
	conditionDesc = prometheus.NewDesc("kms_health_condition",
		"1 for the status of a roll-up's condition, 0 for the others: True, False, Unknown.", []string{"target", "condition", "status"}, nil)
)

// otherReason replaces every reason that is not in health.Reasons: a writer of reports
// can choose any text, and each would be a series.
const otherReason = "Other"

var states = []rollup.State{rollup.Healthy, rollup.Unhealthy, rollup.Error, rollup.Stale, rollup.Skewed, rollup.Unreadable, rollup.Missing}

// metrics has series of every target, node and key, so that one scrape has all.
type metrics struct {
	errors *prometheus.CounterVec

	mu      sync.Mutex
	results map[string]*rollup.Result
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_operator_rollup_errors_total",
			Help: "How often a roll-up could not be written, or a report not be removed, by target.",
		}, []string{"target"}),
		results: map[string]*rollup.Result{},
	}
	registry.MustRegister(m.errors, m)
	return m
}

// set keeps a target's last result; nil: it has none.
func (m *metrics) set(target string, r *rollup.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r == nil {
		delete(m.results, target)
		return
	}
	m.results[target] = r
	m.errors.WithLabelValues(target) // 0 until there is one
}

// Describe is the registry's.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{statusDesc, reasonDesc, checkedDesc, keyDesc, writeKeyDesc, findingDesc, conditionDesc} {
		ch <- d
	}
}

// Collect is the registry's.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for target, r := range m.results {
		for i := range r.Rows {
			row := &r.Rows[i]
			for _, s := range states {
				gauge(statusDesc, one(s == row.State), target, row.Node, row.KeyID, string(s))
			}
			if reason := reasonOf(row); reason != "" {
				gauge(reasonDesc, 1, target, row.Node, row.KeyID, reason)
			}
			if !row.LastChecked.IsZero() {
				gauge(checkedDesc, float64(row.LastChecked.Unix()), target, row.Node, row.KeyID)
			}
			if row.KEKID != "" {
				gauge(keyDesc, 1, target, row.Node, row.KeyID, health.CleanDetail(row.KEKID), keyIDHash(row.KEKID))
			}
		}
		if a := &r.Agreement; a.Agreed {
			gauge(writeKeyDesc, 1, target, a.KeyID, health.CleanDetail(a.KEKID), keyIDHash(a.KEKID))
		}
		for _, f := range subjects(r.Findings) {
			gauge(findingDesc, 1, target, f.condition, string(f.reason), f.node, f.key)
		}
		for _, c := range r.Conditions {
			for _, s := range []string{operatorcr.True, operatorcr.False, operatorcr.Unknown} {
				gauge(conditionDesc, one(s == c.Status), target, c.Type, s)
			}
		}
	}
}

// subject is what a finding is about. Several findings may have the same, for example two
// containers of a node, and a registry rejects equal series.
type subject struct {
	condition string
	reason    rollup.Reason
	node, key string
}

func subjects(findings map[string][]rollup.Finding) (all []subject) {
	seen := map[subject]bool{}
	for condition, of := range findings {
		for i := range of {
			s := subject{condition, of[i].Reason, of[i].Node, of[i].Key}
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// hashed is a key id that a report has as its hash, because it would be too long (see
// docs/reference/contract.md).
var hashed = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// keyIDHash is the label key_id_hash of kube-apiserver's metrics of envelope encryption
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics, getHash).
func keyIDHash(kekID string) string {
	if hashed.MatchString(kekID) {
		return kekID
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(kekID)))
}

// reasonOf is a plugin's reason as a label; empty when its report has none, or does not
// count.
func reasonOf(row *rollup.Row) string {
	switch {
	case row.State != rollup.Unhealthy && row.State != rollup.Error || row.Reason == "":
		return ""
	case slices.Contains(health.Reasons, row.Reason):
		return string(row.Reason)
	default:
		return otherReason
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
