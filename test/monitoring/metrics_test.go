package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// ourMetrics are those of both programs, by name.
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

// unknown are the metrics of a query, and the labels that it selects them by, which
// neither our programs nor the recorded kube-apiserver have.
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
