package rollup

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// series is a gauge of one target with a status, 1 for the one that it is and 0 for
// the others, as a registry sorts them.
func series(name, labels, is string, statuses ...string) string {
	var b strings.Builder
	for _, s := range statuses {
		fmt.Fprintf(&b, "%s{%s,status=%q,target=\"api\"} %d\n", name, labels, s, map[bool]int{s == is: 1}[true])
	}
	return b.String()
}

func TestMetricsHaveEveryTargetNodeAndKey(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	checked := time.Unix(1778241600, 0)
	m.set("api", &rollup.Result{
		Rows: []rollup.Row{
			{Node: "a", State: rollup.Healthy, Entry: health.Entry{KeyID: "2", KEKID: "k-7", Status: health.Healthy, LastChecked: checked}},
			{Node: "a", State: rollup.Stale, Entry: health.Entry{KeyID: "1", KEKID: "k\x1b6", Status: health.Error, LastChecked: checked.Add(-time.Hour)}},
			{Node: "a", State: rollup.Stale, Entry: health.Entry{KeyID: "0", Status: health.Unhealthy, Reason: health.Timeout}},
			{Node: "b", State: rollup.Missing, Entry: health.Entry{KeyID: "2"}},
			{Node: "c", State: rollup.Unhealthy, Entry: health.Entry{KeyID: "2", Status: health.Unhealthy, Reason: health.Throttled}},
			{Node: "d", State: rollup.Error, Entry: health.Entry{KeyID: "2", Status: health.Error, Reason: "OfALaterVersion"}},
			{Node: "e", State: rollup.Error, Entry: health.Entry{KeyID: "2", Status: health.Error}}, // of an earlier version
			{Node: "f", State: rollup.Healthy, Entry: health.Entry{KeyID: "2", Status: health.Healthy, Reason: health.Timeout}},
		},
		Conditions: []operatorcr.Condition{{Type: rollup.Degraded, Status: operatorcr.Unknown}, {Type: rollup.Observed, Status: operatorcr.False}},
		Agreement:  rollup.Agreement{KeyID: "2", Agreed: true, KEKID: "k-7"},
		Findings: map[string][]rollup.Finding{
			rollup.Degraded: {
				{Reason: rollup.PluginNotRunning, Node: "a", Subject: "kms-1", Detail: "exit code 1"},
				{Reason: rollup.PluginNotRunning, Node: "a", Subject: "kms-2"}, // the same series
				{Reason: rollup.PluginUnhealthy, Node: "c", Key: "2"},
			},
			rollup.WriteKeyAgreed: {{Reason: rollup.PluginUnhealthy, Node: "c", Key: "2", Fact: rollup.NoKEKID}},
		},
	})
	m.set("off", &rollup.Result{Conditions: []operatorcr.Condition{{Type: rollup.Degraded, Status: operatorcr.True}}})
	m.set("off", nil)
	m.set("never", nil)

	states := []string{"error", "healthy", "missing", "skewed", "stale", "unhealthy", "unreadable"}
	reason := func(node, reason string) string {
		return fmt.Sprintf("kms_health_plugin_reason{key_id=\"2\",node=%q,reason=%q,target=\"api\"} 1\n", node, reason)
	}
	status := func(node, key, is string) string {
		return series("kms_health_plugin_status", fmt.Sprintf("key_id=%q,node=%q", key, node), is, states...)
	}
	condition := func(of, is string) string {
		return series("kms_health_condition", fmt.Sprintf("condition=%q", of), is, "False", "True", "Unknown")
	}
	want := `# HELP kms_health_condition 1 for the status of a roll-up's condition, 0 for the others: True, False, Unknown.
# TYPE kms_health_condition gauge
` + condition("KMSHealthObserved", "False") + condition("KMSPluginsDegraded", "Unknown") +
		`# HELP kms_health_finding 1 for each reason why a condition of a roll-up is as it is, by node and key. A silence that is excused is none.
# TYPE kms_health_finding gauge
kms_health_finding{condition="KMSPluginsDegraded",key_id="",node="a",reason="PluginNotRunning",target="api"} 1
kms_health_finding{condition="KMSPluginsDegraded",key_id="2",node="c",reason="PluginUnhealthy",target="api"} 1
kms_health_finding{condition="KMSWriteKeyAgreed",key_id="2",node="c",reason="PluginUnhealthy",target="api"} 1
# HELP kms_health_plugin_key_info 1; the remote key that a plugin named last, and its SHA-256 as kube-apiserver's metrics have it.
# TYPE kms_health_plugin_key_info gauge
kms_health_plugin_key_info{kek_id="k 6",key_id="1",key_id_hash="sha256:9890d099c97e0c79ed8d44c7ac3434347afef9f7d027803b012a3b0a41c9697d",node="a",target="api"} 1
kms_health_plugin_key_info{kek_id="k-7",key_id="2",key_id_hash="sha256:e9bb596c0affcd835bd858235086ead8c5cb67a8de0eb3673c0c4ddeefe41897",node="a",target="api"} 1
# HELP kms_health_plugin_last_checked_timestamp_seconds When a plugin was last checked, by its node's clock.
# TYPE kms_health_plugin_last_checked_timestamp_seconds gauge
kms_health_plugin_last_checked_timestamp_seconds{key_id="1",node="a",target="api"} 1.778238e+09
kms_health_plugin_last_checked_timestamp_seconds{key_id="2",node="a",target="api"} 1.7782416e+09
# HELP kms_health_plugin_reason 1; why a plugin is unhealthy, or an error, by its node's fresh report; Other for a reason that this version does not know.
# TYPE kms_health_plugin_reason gauge
` + reason("c", "Throttled") + reason("d", "Other") +
		`# HELP kms_health_plugin_status 1 for the state of a plugin on a node, 0 for the others: healthy, unhealthy, error, stale, skewed, unreadable, missing.
# TYPE kms_health_plugin_status gauge
` + status("a", "0", "stale") + status("a", "1", "stale") + status("a", "2", "healthy") + status("b", "2", "missing") +
		status("c", "2", "unhealthy") + status("d", "2", "error") + status("e", "2", "error") + status("f", "2", "healthy") +
		`# HELP kms_health_write_key_info 1 while all API servers of a target write with this key and this remote key; no series while they do not, or while that is not known.
# TYPE kms_health_write_key_info gauge
kms_health_write_key_info{kek_id="k-7",key_id="2",key_id_hash="sha256:e9bb596c0affcd835bd858235086ead8c5cb67a8de0eb3673c0c4ddeefe41897",target="api"} 1
`
	// From the first result on: increase() does not see a counter's first value.
	const errors = `# HELP kms_health_operator_rollup_errors_total How often a roll-up could not be written, or a report not be removed, by target.
# TYPE kms_health_operator_rollup_errors_total counter
kms_health_operator_rollup_errors_total{target="off"} 0
`
	want += errors + "kms_health_operator_rollup_errors_total{target=\"api\"} 0\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}

	m.errors.WithLabelValues("api").Inc()
	m.set("api", nil)
	want = errors + "kms_health_operator_rollup_errors_total{target=\"api\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// kube-apiserver's metrics have the hash of the whole key id, also of one that a report has
// as its hash already.
func TestKeyIDHash(t *testing.T) {
	const long = "sha256:fb5d5a5bd3cd3f3a3b7f8a2bd4bfb1d8a3d7b0f4e2b9c5a6f7e8d9c0b1a2f3e4"
	for kekID, want := range map[string]string{
		"k-7":         "sha256:e9bb596c0affcd835bd858235086ead8c5cb67a8de0eb3673c0c4ddeefe41897",
		long:          long,
		long + "5":    fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(long+"5"))),
		"sha256:1234": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("sha256:1234"))),
	} {
		if got := keyIDHash(kekID); got != want {
			t.Errorf("%q: %s, want %s", kekID, got, want)
		}
	}
}

// A state without a series could not be used in an alert.
func TestEveryStateIsOneSeries(t *testing.T) {
	for _, state := range []rollup.State{rollup.Healthy, rollup.Unhealthy, rollup.Error, rollup.Stale, rollup.Skewed, rollup.Unreadable, rollup.Missing} {
		registry := prometheus.NewPedanticRegistry()
		newMetrics(registry).set("api", &rollup.Result{Rows: []rollup.Row{{Node: "a", State: state}}})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0 // of every family: the others are 0
		for _, family := range families {
			for _, m := range family.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
		}
		if sum != 1 {
			t.Errorf("%s: %v series are 1", state, sum)
		}
	}
}

func TestSameConditions(t *testing.T) {
	of := func(message string) *rollup.Result {
		return &rollup.Result{Conditions: []operatorcr.Condition{{Type: rollup.Degraded, Status: operatorcr.True, Message: message, LastTransitionTime: now}}, Deadline: now, Rows: []rollup.Row{{Node: message}}}
	}
	other := of("x")
	other.Deadline, other.Rows = now.Add(1), nil
	for _, tt := range []struct {
		name string
		a, b *rollup.Result
		want bool
	}{
		{"none and none", nil, nil, true},
		{"none and some", nil, of("x"), false},
		{"some and none", of("x"), nil, false},
		{"the same", of("x"), of("x"), true},
		{"the same, made of something else", of("x"), other, true},
		{"other words", of("x"), of("y"), false},
		{"one more", of("x"), &rollup.Result{Conditions: append(of("x").Conditions, operatorcr.Condition{})}, false},
	} {
		if got := sameConditions(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
