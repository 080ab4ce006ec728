package monitoring

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

type exprTest struct {
	Expr       string   `json:"expr"`
	EvalTime   string   `json:"eval_time"`
	ExpSamples []sample `json:"exp_samples"`
}

type ruleTest struct {
	Name           string        `json:"name"`
	Interval       string        `json:"interval"`
	InputSeries    []inputSeries `json:"input_series"`
	PromqlExprTest []exprTest    `json:"promql_expr_test"`
}

// leading prevents the alert on an absent operator.
var leading = inputSeries{Series: "kms_health_operator_leader", Values: "1x3000"}

func runRuleTests(t *testing.T, tests ...ruleTest) {
	t.Helper()
	raw, err := yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "30s", "tests": tests})
	must.Succeed(t, err)
	promtool(t, raw, "test", "rules", "tests.yaml")
}

// active expects exactly these alerts at a time of the recording. They may be pending: the recording is too short for
// some to fire.
func active(at string, alerts ...string) exprTest {
	e := exprTest{Expr: `count by (alertname, provider, method_name) (ALERTS)`, EvalTime: at, ExpSamples: []sample{}}
	for _, a := range alerts {
		labels := `alertname="` + a + `",provider="2"`
		if a == "KMSCallsSlow" || a == "KMSCallsFail" {
			labels += `,method_name="/v2.KeyManagementService/Status"`
		}
		e.ExpSamples = append(e.ExpSamples, sample{"{" + labels + "}", 1})
	}
	return e
}

// The clock of an API server may be right, or hours from that of Prometheus.
var clocks = []time.Duration{0, 7 * time.Hour, -7 * time.Hour}

// firstNumber matches the number at the beginning of values, as in 3, 3.5x2 and 3+30x2. Values of _x2 have none.
var firstNumber = regexp.MustCompile(`(?:^| )-?[0-9][0-9.]*`)

// dated returns series of an API server whose clock is ahead of that of Prometheus, or behind if negative.
func dated(ahead time.Duration, series ...inputSeries) (all []inputSeries) {
	for _, s := range series {
		if strings.Contains(s.Series, "_timestamp_seconds{") {
			s.Values = firstNumber.ReplaceAllStringFunc(s.Values, func(number string) string {
				at, _ := strconv.ParseFloat(strings.TrimSpace(number), 64)
				return " " + strconv.FormatFloat(at+ahead.Seconds(), 'f', -1, 64)
			})
		}
		all = append(all, s)
	}
	return all
}

// The header of the recording says when the plugin had which fault.
func TestAlertsOnTheAPIServersMetrics(t *testing.T) {
	var tests []ruleTest
	for _, ahead := range clocks {
		tests = append(tests, ruleTest{
			Name: "recorded, with a clock ahead by " + ahead.String(), Interval: "30s",
			InputSeries: append(dated(ahead, readRecording(t)...), leading),
			PromqlExprTest: []exprTest{
				active("1m30s"),
				active("3m30s"), // the key was rotated
				active("6m30s", "KMSCallsSlow"),
				active("9m", "KMSCallsFail"),
				active("11m30s", "KMSCallsFail", "KMSAPIServerLacksPlugin", "KMSNoAPIServerReachesPlugin"),
				active("12m30s", "KMSCallsFail"), // it uses the last 5 minutes
			},
		})
	}
	runRuleTests(t, tests...)
}

// One of two API servers reaches the plugin, so the alert must not be critical.
func TestAlertsWhereOneOfTwoAPIServersLacksThePlugin(t *testing.T) {
	const other = `provider_name="kms-2_secrets",instance="192.0.2.2:6443",job="apiserver",namespace="default"}`
	var tests []ruleTest
	for _, ofOne := range clocks {
		for _, ofOther := range clocks {
			series := append(dated(ofOne, readRecording(t)...), dated(ofOther,
				inputSeries{`apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/Status",` + other, "0+1x30"},
				inputSeries{`apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{apiserver_id_hash="sha256:1",key_id_hash="sha256:2",` + other, "0+30x30"})...)
			tests = append(tests, ruleTest{
				Name:     fmt.Sprintf("one of two, with clocks ahead by %s and %s", ofOne, ofOther),
				Interval: "30s", InputSeries: append(series, leading),
				PromqlExprTest: []exprTest{active("1m30s"), active("11m30s", "KMSCallsFail", "KMSAPIServerLacksPlugin")},
			})
		}
	}
	runRuleTests(t, tests...)
}

// Providers with similar names are different: a working plugin must not hide that the plugin of the other fails.
func TestAlertOnOneOfTwoProvidersWithSimilarNames(t *testing.T) {
	const works = `provider_name="vault_new",instance="192.0.2.1:6443",job="apiserver",namespace="default"}`
	series := []inputSeries{leading,
		{`apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/Status",` + works, "0+1x30"},
		{`apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{apiserver_id_hash="sha256:1",key_id_hash="sha256:2",` + works, "0+30x30"}}
	for _, s := range readRecording(t) {
		series = append(series, inputSeries{strings.ReplaceAll(s.Series, `"kms-2_secrets"`, `"vault_old"`), s.Values})
	}
	critical := sample{`{provider="vault_old"}`, 1}
	runRuleTests(t, ruleTest{Name: "similar names", Interval: "30s", InputSeries: series, PromqlExprTest: []exprTest{
		{`count by (provider) (ALERTS{alertname="KMSNoAPIServerReachesPlugin"})`, "11m30s", []sample{critical}},
	}})
}

// An API server that restarted while the plugin fails has never had an answer from it, so it lacks the series of an
// answer.
func TestAlertsOfAnAPIServerThatStartsWithoutItsPlugin(t *testing.T) {
	var without []inputSeries
	for _, s := range readRecording(t) {
		if !strings.Contains(s.Series, "_status_last_timestamp_seconds{") {
			without = append(without, s)
		}
	}
	runRuleTests(t, ruleTest{
		Name: "never answered", Interval: "30s", InputSeries: append(without, leading),
		PromqlExprTest: []exprTest{active("3m30s", "KMSAPIServerLacksPlugin", "KMSNoAPIServerReachesPlugin")},
	})
}

// The labels were recorded from a kube-apiserver whose plugin had answered Decrypt with other bytes.
func TestAlertOnStoredDataThatCannotBeDecrypted(t *testing.T) {
	const labels = `,instance="192.0.2.1:6443",job="apiserver",namespace="default",resource="secrets"}`
	reads := func(status, values string) inputSeries {
		return inputSeries{`apiserver_storage_transformation_operations_total{status="` + status +
			`",transformation_type="from_storage",transformer_prefix="k8s:enc:kms:v2:1_secrets:"` + labels, values}
	}
	at := func(when string, firing ...sample) exprTest {
		return exprTest{`ALERTS{alertstate="firing"}`, when, append([]sample{}, firing...)}
	}
	runRuleTests(t, ruleTest{Name: "unreadable", Interval: "30s",
		InputSeries: []inputSeries{leading, reads("OK", "0+1x80"), reads("unknown-non-grpc", "0x20 0+1x30 30x30")},
		PromqlExprTest: []exprTest{
			at("10m"),
			at("23m", sample{`ALERTS{alertname="KMSStoredDataUnreadable",alertstate="firing",severity="warning"` + labels, 1}),
			at("33m"), // the API server was restarted
		},
	}, ruleTest{Name: "a plugin starts two minutes after its API server", Interval: "30s",
		InputSeries:    []inputSeries{leading, reads("OK", "0+1x60"), reads("unknown-non-grpc", "_x20 1+9x4 37x40")},
		PromqlExprTest: []exprTest{at("15m"), at("16m"), at("17m"), at("18m"), at("20m")},
	})
}

var recordedKeys = regexp.MustCompile(`(?m)^# The plugin's key ids, one after the other: (\S+) (\S+)$`)

// "Can the old key be deleted?" needs the hashes of kube-apiserver to equal the hashes in the operator's metrics.
func TestReadsWithAnOldKeyAreFoundByOurHash(t *testing.T) {
	raw := disk.Read(t, recorded)
	keys := recordedKeys.FindStringSubmatch(string(raw))
	if keys == nil {
		t.Fatal("the recording does not name its keys")
	}
	hash := func(id string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id))) }
	var expr string
	for _, a := range readAlerts(t) {
		if a.Alert == "KMSOldKeyStillRead" {
			expr = "count by (key_id_hash) (" + a.Expr + ")"
		}
	}
	panel := "count by (key_id_hash) (" + panelQuery(t, "API servers, by their own metrics: Reads with earlier keys") + ")"
	series := append(readRecording(t), leading)
	agreed := func(hash string) inputSeries {
		return inputSeries{Series: `kms_health_write_key_info{api_server="other",key_id="2",key_id_hash="` + hash + `"}`, Values: "1x60"}
	}
	named := func(node, keyID, hash string) inputSeries {
		return inputSeries{`kms_health_plugin_key_info{api_server="api",node="` + node + `",key_id="` + keyID + `",key_id_hash="` + hash + `"}`, "1x60"}
	}
	finding := func(reason string) inputSeries {
		return inputSeries{`kms_health_finding{api_server="api",condition="KMSWriteKeyAgreed",reason="` + reason + `",node="a",key_id="2"}`, "1x60"}
	}
	notAgreed := inputSeries{`kms_health_condition{api_server="api",condition="KMSWriteKeyAgreed",status="True"}`, "0x60"}
	before, after := hash(keys[1]), hash(keys[2])
	read := func(name, at string, of []inputSeries, want ...sample) ruleTest {
		r := ruleTest{Name: name, Interval: "30s", InputSeries: append(series[:len(series):len(series)], of...)}
		for _, e := range []string{expr, panel} {
			r.PromqlExprTest = append(r.PromqlExprTest, exprTest{Expr: e, EvalTime: at, ExpSamples: append([]sample{}, want...)})
		}
		return r
	}
	old := sample{`{key_id_hash="` + before + `"}`, 1}
	runRuleTests(t,
		read("before the rotation", "1m30s", []inputSeries{agreed(before), named("a", "2", before)}),
		read("after it", "6m", []inputSeries{agreed(after), named("a", "2", after)}, old),
		read("the reader is another plugin", "6m", []inputSeries{agreed(after), named("a", "2", after), named("a", "1", before)}, old),
		read("another target writes with the old key", "6m", []inputSeries{agreed(before), agreed(after), named("a", "2", after)}),
		read("nothing is known", "6m", nil),
		// A key that a plugin of the write key names is not an earlier key, even without agreement.
		read("the nodes do not agree", "6m", []inputSeries{notAgreed, finding("KeysDiffer"), named("a", "2", before), named("b", "2", after)}),
		read("a plugin is unhealthy", "6m", []inputSeries{notAgreed, finding("PluginUnhealthy"), named("b", "2", after), named("b", "1", before)}, old),
		// The write key is not known outside pods (k3s), or if it is only for some resources. Then each key that a plugin
		// names may be the write key.
		read("the write key is not known", "6m", []inputSeries{notAgreed, named("a", "2", before), named("a", "1", after)}),
	)
}

// A counter of something that happens once begins with 1, and its increase() is 0.
func TestPanelHasTheFirstChangeOfItsKind(t *testing.T) {
	query := panelQuery(t, "Operator: Changes")
	at := func(when string, want ...sample) exprTest {
		return exprTest{Expr: query, EvalTime: when, ExpSamples: append([]sample{}, want...)}
	}
	change := func(reason, values string) inputSeries {
		return inputSeries{Series: `kms_health_operator_changes_total{api_server="api",instance="a",reason="` + reason + `"}`, Values: values}
	}
	counted := func(reason string, value float64) sample {
		return sample{`{api_server="api",reason="` + reason + `"}`, value}
	}
	runRuleTests(t, ruleTest{Name: "changes", Interval: "1m",
		InputSeries: []inputSeries{leading, change("Applied", "3x100 4x100"), change("KeysDiffer", "_x99 1x100")},
		PromqlExprTest: []exprTest{
			at("30m", counted("Applied", 3)), // since the operator started
			at("98m"),
			at("110m", counted("Applied", 1), counted("KeysDiffer", 1)),
			at("180m"),
		},
	})
}

func panelQuery(t *testing.T, name string) string {
	t.Helper()
	d := readDashboard(t)
	queries := d.queries()[name]
	if len(queries) != 1 {
		t.Fatalf("%q has %d queries", name, len(queries))
	}
	return queries[0]
}
