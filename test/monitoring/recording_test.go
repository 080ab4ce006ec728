package monitoring

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// recorded are series of a real kube-apiserver, as promtool takes them.
const recorded = "testdata/kube-apiserver.yaml"

type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

func readRecording(t *testing.T) []inputSeries {
	t.Helper()
	raw, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		InputSeries []inputSeries `json:"input_series"`
	}
	if err := yaml.UnmarshalStrict(raw, &content); err != nil {
		t.Fatal(err)
	}
	return content.InputSeries
}

var (
	metricOf = regexp.MustCompile(`^[a-z_]+`)
	labelOf  = regexp.MustCompile(`([a-z_]+)="`)
)

// labelsOf are the names of the metrics of series, each with the names of its labels but for Prometheus's own.
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
