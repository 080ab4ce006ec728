package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kms-health/kms-health/pkg/contract"
)

func TestTextIsInPrometheusFormat(t *testing.T) {
	counter := contract.Metric{Name: "a_total", Type: "counter", Help: "Of a.", Labels: []string{"key_id", "what"}}
	gauge := contract.Metric{Name: "b", Type: "gauge", Help: "Of b."}
	histogram := contract.Metric{Name: "c_seconds", Type: "histogram", Help: "Of c.", Labels: []string{"key_id"}}
	empty := contract.Metric{Name: "d_total", Type: "counter", Help: "Has no series.", Labels: []string{"key_id"}}
	zero := contract.Metric{Name: "e_total", Type: "counter", Help: "Of e."}
	unset := contract.Metric{Name: "f", Type: "gauge", Help: "Has no value."}
	r := New([]contract.Metric{counter, gauge, histogram, empty, zero, unset})
	const odd = "a \"b\" \\ \n é"
	r.Add(counter, 1, "1", odd)
	r.Add(counter, 2, "1", odd)
	r.Add(counter, 0, "2", "y")
	r.SetTime(gauge, time.UnixMilli(1_700_000_000_250))
	for _, took := range []time.Duration{time.Millisecond, 500 * time.Millisecond, time.Minute} {
		r.Observe(histogram, took, "1")
	}
	const want = `# HELP a_total Of a.
# TYPE a_total counter
a_total{key_id="1",what="a \"b\" \\ \n é"} 3
a_total{key_id="2",what="y"} 0
# HELP b Of b.
# TYPE b gauge
b 1.70000000025e+09
# HELP c_seconds Of c.
# TYPE c_seconds histogram
c_seconds_bucket{key_id="1",le="0.001"} 1
c_seconds_bucket{key_id="1",le="0.005"} 1
c_seconds_bucket{key_id="1",le="0.025"} 1
c_seconds_bucket{key_id="1",le="0.1"} 1
c_seconds_bucket{key_id="1",le="0.5"} 2
c_seconds_bucket{key_id="1",le="2"} 2
c_seconds_bucket{key_id="1",le="10"} 2
c_seconds_bucket{key_id="1",le="+Inf"} 3
c_seconds_sum{key_id="1"} 60.501
c_seconds_count{key_id="1"} 3
# HELP e_total Of e.
# TYPE e_total counter
e_total 0
`
	ours, _, _ := strings.Cut(string(r.Text()), "# HELP go_")
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Error(diff)
	}
	// Prometheus's own parser must accept the text, too.
	if problems, err := promlint.New(strings.NewReader(ours)).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	r.Delete(counter, "what", "y")
	r.Delete(counter, "key_id", "1")
	r.Delete(gauge, "", "")
	if text := string(r.Text()); !strings.HasPrefix(text, "# HELP c_seconds ") {
		t.Errorf("a and b were deleted: %s", text)
	}
}
