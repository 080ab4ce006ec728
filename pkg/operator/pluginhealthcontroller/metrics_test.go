package pluginhealthcontroller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// series returns a gauge's series of one target: 1 for its status and 0 for the others, in a registry's order.
func series(name, labels, is string, statuses ...string) string {
	var b strings.Builder
	for _, s := range statuses {
		fmt.Fprintf(&b, "%s{api_server=\"api\",%s,status=%q} %d\n", name, labels, s, map[bool]int{s == is: 1}[true])
	}
	return b.String()
}

const (
	hash6 = "sha256:9890d099c97e0c79ed8d44c7ac3434347afef9f7d027803b012a3b0a41c9697d" // the hash of "k 6", a cleaned key ID
	hash7 = "sha256:e9bb596c0affcd835bd858235086ead8c5cb67a8de0eb3673c0c4ddeefe41897"
)

func finding(condition, key, node, reason string) string {
	return fmt.Sprintf("kms_health_finding{api_server=\"api\",condition=%q,key_id=%q,node=%q,reason=%q} 1\n",
		condition, key, node, reason)
}

func pluginKey(kek, key, hash string) string {
	return fmt.Sprintf(
		"kms_health_plugin_key_info{api_server=\"api\",kek_id=%q,key_id=%q,key_id_hash=%q,node=\"a\"} 1\n", kek, key, hash)
}

func lost(key, kek string) string {
	return fmt.Sprintf("kms_health_plugin_former_key_lost{api_server=\"api\",kek_id=%q,key_id=%q,node=\"a\"} 1\n", kek, key)
}

func age(key, seconds string) string {
	return fmt.Sprintf("kms_health_plugin_report_age_seconds{api_server=\"api\",key_id=%q,node=\"a\"} %s\n", key, seconds)
}

// entryOf returns an entry that was seen to change at a time.
func entryOf(e contract.Entry, changed time.Time) rollup.Entry {
	return rollup.Entry{Entry: e, Changed: changed}
}

func row(node string, state rollup.State, e contract.Entry, changed time.Time) rollup.Row {
	return rollup.Row{Node: node, State: state, Entry: entryOf(e, changed)}
}

var checked = time.Unix(1778241600, 0)

var everything = &rollup.Result{
	Rows: []rollup.Row{
		row("a", rollup.Healthy, contract.Entry{KeyID: "2", KEKID: "k-7", Lost: []string{"k-5", "k\x1b4", "k 4", "k-5"}},
			checked),
		row("a", rollup.Stale, contract.Entry{KeyID: "1", KEKID: "k\x1b6", Lost: []string{hash7}}, checked.Add(-time.Hour)),
		row("a", rollup.Stale, contract.Entry{KeyID: "0", Reason: contract.Timeout}, time.Time{}),
		row("b", rollup.Missing, contract.Entry{KeyID: "2"}, time.Time{}),
		row("c", rollup.Unhealthy, contract.Entry{KeyID: "2", Reason: contract.Throttled}, time.Time{}),
		row("d", rollup.Error, contract.Entry{KeyID: "2", Reason: "OfALaterVersion"}, time.Time{}),
		row("e", rollup.Error, contract.Entry{KeyID: "2"}, time.Time{}), // the entry of an earlier version's reporter
		{Node: "g", State: rollup.Unreadable},
		row("f", rollup.Healthy, contract.Entry{KeyID: "2", Reason: contract.Timeout}, time.Time{}),
	},
	Conditions: map[string]operatorstatus.Condition{
		contract.PluginsDegraded: {Type: contract.PluginsDegraded, Status: operatorstatus.Unknown},
		contract.HealthReporting: {Type: contract.HealthReporting, Status: operatorstatus.False},
		contract.WriteKeyAgreed:  {Type: contract.WriteKeyAgreed, Status: operatorstatus.True}},
	Agreement: agreement("k-7"),
	Findings: map[string][]rollup.Finding{
		contract.PluginsDegraded: {
			{Reason: contract.PluginNotRunning, Node: "a", Text: "kms-1", Detail: "exit code 1"},
			{Reason: contract.PluginNotRunning, Node: "a", Text: "kms-2"}, // gives the same series
			{Reason: contract.PluginUnhealthy, Node: "c", Key: "2"},
		},
		contract.WriteKeyAgreed: {{Reason: contract.PluginUnhealthy, Node: "c", Key: "2"}},
	},
}

func TestMetricsHaveEveryTargetNodeAndKey(t *testing.T) { synctest.Test(t, everyMetric) }

func everyMetric(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.set("api", everything, checked.Add(5*time.Second))
	time.Sleep(7 * time.Second)
	m.set("off",
		&rollup.Result{Conditions: map[string]operatorstatus.Condition{"x": {Type: "x", Status: operatorstatus.True}}}, now)
	m.set("off", nil, now)
	m.set("never", nil, now)

	states := []string{"error", "healthy", "missing", "stale", "unhealthy", "unreadable"}
	reason := func(node, reason string) string {
		return fmt.Sprintf("kms_health_plugin_reason{api_server=\"api\",key_id=\"2\",node=%q,reason=%q} 1\n", node, reason)
	}
	status := func(node, key, is string) string {
		return series("kms_health_plugin_status", fmt.Sprintf("key_id=%q,node=%q", key, node), is, states...)
	}
	condition := func(of, is string) string {
		return series("kms_health_condition", fmt.Sprintf("condition=%q", of), is, "False", "True", "Unknown")
	}
	want := head(contract.MetricCondition) + condition("KMSHealthReporting", "False") +
		condition("KMSPluginsDegraded", "Unknown") + condition("KMSWriteKeyAgreed", "True") +
		head(contract.MetricFinding) + finding("KMSPluginsDegraded", "", "a", "PluginNotRunning") +
		finding("KMSPluginsDegraded", "2", "c", "PluginUnhealthy") + finding("KMSWriteKeyAgreed", "2", "c",
		"PluginUnhealthy") +
		head(contract.MetricFormerKeyLost) + lost("1", hash7) + lost("2", "k 4") + lost("2", "k-5") +
		head(contract.MetricPluginKey) + pluginKey("k 6", "1", hash6) + pluginKey("k-7", "2", hash7) +
		head(contract.MetricPluginReason) + reason("c", "Throttled") + reason("d", "Other") +
		head(contract.MetricPluginReportAge) + age("1", "3612") + age("2", "12") +
		head(contract.MetricPluginStatus) + status("a", "0", "stale") + status("a", "1", "stale") + status("a", "2",
		"healthy") + status("b", "2", "missing") +
		status("c", "2", "unhealthy") + status("d", "2", "error") + status("e", "2", "error") + status("f", "2", "healthy") +
		status("g", "", "unreadable") +
		head(contract.MetricWriteKey) +
		fmt.Sprintf("kms_health_write_key_info{api_server=\"api\",kek_id=\"k-7\",key_id=\"2\",key_id_hash=%q} 1\n", hash7)
	// From the first result on: increase() does not see a counter's first value.
	errors := head(contract.MetricRollupErrors) + `kms_health_operator_rollup_errors_total{api_server="off"} 0
`
	want += errors + "kms_health_operator_rollup_errors_total{api_server=\"api\"} 0\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}

	m.errors.WithLabelValues("api").Inc()
	m.set("api", &rollup.Result{Agreement: agreement("k-7")}, now) // it settles
	want = errors + "kms_health_operator_rollup_errors_total{api_server=\"api\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// head returns the lines HELP and TYPE of a metric in the text format.
func head(m contract.Metric) string {
	return "# HELP " + m.Name + " " + m.Help + "\n# TYPE " + m.Name + " " + m.Type + "\n"
}
