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

func readRecording(t *testing.T, file string) []inputSeries {
	t.Helper()
	raw, err := os.ReadFile(file)
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

// seriesOf are the names of the metrics in a recording, each with the names of its labels
// but for Prometheus's own.
func seriesOf(t *testing.T, file string) map[string][]string {
	t.Helper()
	name, label := regexp.MustCompile(`^[a-z_]+`), regexp.MustCompile(`([a-z_]+)="`)
	metrics := map[string][]string{}
	for _, s := range readRecording(t, file) {
		of := name.FindString(s.Series)
		for _, l := range label.FindAllStringSubmatch(s.Series, -1) {
			if !slices.Contains([]string{"instance", "job", "namespace"}, l[1]) && !slices.Contains(metrics[of], l[1]) {
				metrics[of] = append(metrics[of], l[1])
			}
		}
		slices.Sort(metrics[of])
	}
	return metrics
}
