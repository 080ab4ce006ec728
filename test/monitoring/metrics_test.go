package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// ourMetrics returns the metrics of the operator and the reporter, by name.
func ourMetrics() map[string]contract.Metric {
	all := map[string]contract.Metric{}
	for _, m := range slices.Concat(contract.RollupMetrics, contract.OperatorMetrics, contract.ReporterMetrics) {
		all[m.Name] = m
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\b(?:kms_health|apiserver)_[a-z_]+`)
	selector   = regexp.MustCompile(`\b((?:kms_health|apiserver)_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
)

// unknown returns the metrics and labels of a query that neither ours (the project's programs) nor theirs (the recorded
// kube-apiserver) have.
func unknown(query string, ours map[string]contract.Metric, theirs map[string][]string) (problems []string) {
	labels := func(name string) (of []string, ok bool) {
		if m, known := ours[name]; known {
			return append(slices.Clone(m.Labels), "namespace", "job", "instance"), true
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if m, known := ours[strings.TrimSuffix(name, suffix)]; known && m.Type == "histogram" {
				return append(slices.Clone(m.Labels), "le", "namespace", "job", "instance"), true
			}
		}
		of, ok = theirs[name]
		return append(slices.Clone(of), "namespace", "job", "instance"), ok
	}
	for _, name := range metricName.FindAllString(query, -1) {
		if _, ok := labels(name); !ok {
			problems = append(problems, name)
		}
	}
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		of, _ := labels(s[1])
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(of, m[1]) {
				problems = append(problems, s[1]+" has no label "+m[1])
			}
		}
	}
	return problems
}

// An alert on a metric that does not exist never fires.
func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	ours, theirs := ourMetrics(), labelsOf(readRecording(t))
	for _, a := range readAlerts(t) {
		for _, query := range append([]string{a.Expr}, a.Annotations["description"]) {
			for _, problem := range unknown(query, ours, theirs) {
				t.Errorf("%s: %s", a.Alert, problem)
			}
		}
	}
}

// recorded has series of a real kube-apiserver, in the format of promtool.
const recorded = "testdata/kube-apiserver.yaml"

type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

func readRecording(t *testing.T) []inputSeries {
	t.Helper()
	raw := disk.Read(t, recorded)
	var content struct {
		InputSeries []inputSeries `json:"input_series"`
	}
	must.Succeed(t, yaml.UnmarshalStrict(raw, &content))
	return content.InputSeries
}

var (
	metricOf = regexp.MustCompile(`^[a-z_]+`)
	labelOf  = regexp.MustCompile(`([a-z_]+)="`)
)

// labelsOf returns the names of the metrics, and of their labels without those that Prometheus adds.
func labelsOf(series []inputSeries) map[string][]string {
	metrics := map[string][]string{}
	for _, s := range series {
		of := metricOf.FindString(s.Series)
		for _, l := range labelOf.FindAllStringSubmatch(s.Series, -1) {
			if !slices.Contains([]string{"instance", "job", "namespace"}, l[1]) && !slices.Contains(metrics[of], l[1]) {
				metrics[of] = append(metrics[of], l[1])
			}
		}
		slices.Sort(metrics[of])
	}
	return metrics
}

// The script selects metrics of kube-apiserver and Prometheus by regular expressions. They must match all metrics of
// the alerts.
func TestAMustGatherHasTheMetricsOfTheAlerts(t *testing.T) {
	script := disk.Read(t, "../../manifests/must-gather/gather")
	asks := regexp.MustCompile(`sed -n -E '/\^\(# TYPE \)\?(.*)/p'|__name__=~"(.*)"\}`).FindAllSubmatch(script, -1)
	if len(asks) != 2 {
		t.Fatalf("%q", asks)
	}
	for _, a := range readAlerts(t) {
		for _, name := range metricName.FindAllString(a.Expr, -1) {
			kubeAPIServer := regexp.MustCompile("^" + string(asks[0][1])).MatchString(name)
			prometheus := regexp.MustCompile("^(?:" + string(asks[1][2]) + ")$").MatchString(name)
			if !prometheus || kubeAPIServer != strings.HasPrefix(name, "apiserver_") {
				t.Errorf("%s of %s: asked of kube-apiserver: %v, of Prometheus: %v", name, a.Alert, kubeAPIServer, prometheus)
			}
		}
	}
}

var findingReason = regexp.MustCompile(`kms_health_finding\{[^}]*reason=~?"([^"]+)"`)

// Each reason that needs an alert must be in one: alerts list reasons by name.
func TestReasonsAreInTheirAlerts(t *testing.T) {
	for _, r := range contract.RollupReasons {
		alerted := slices.ContainsFunc(readAlerts(t), func(a alert) bool {
			return slices.ContainsFunc(findingReason.FindAllStringSubmatch(a.Expr, -1), func(m []string) bool {
				return regexp.MustCompile("^(?:" + m[1] + ")$").MatchString(r.Name)
			})
		})
		if alerted != (r.Alerted || r.NeedsAction) {
			t.Errorf("%s: alerted: %v, needs action: %v; in an alert: %v", r.Name, r.Alerted, r.NeedsAction, alerted)
		}
	}
}
