package metric

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kms-health/kms-health/pkg/contract"
)

func TestTextIsInPrometheusFormat(t *testing.T) {
	var s Set
	counter := s.New(contract.Metric{Name: "a_total", Type: "counter", Help: "Of a.", Labels: []string{"key_id", "what"}})
	gauge := s.New(contract.Metric{Name: "b", Type: "gauge", Help: "Of b."})
	histogram := s.New(contract.Metric{Name: "c_seconds", Type: "histogram", Help: "Of c.", Labels: []string{"key_id"}}, .5, 2)
	s.New(contract.Metric{Name: "d_total", Type: "counter", Help: "Has no series.", Labels: []string{"key_id"}})
	s.Func("e", "Of e.", func() float64 { return 7 })
	const odd = "a \"b\" \\ \n é"
	counter.Add(1, "1", odd)
	counter.Add(2, "1", odd)
	counter.Add(0, "2", "y")
	gauge.Set(1.7e9)
	for _, value := range []float64{.1, .5, 1, 30} {
		histogram.Observe(value, "1")
	}
	const want = `# HELP a_total Of a.
# TYPE a_total counter
a_total{key_id="1",what="a \"b\" \\ \n é"} 3
a_total{key_id="2",what="y"} 0
# HELP b Of b.
# TYPE b gauge
b 1.7e+09
# HELP c_seconds Of c.
# TYPE c_seconds histogram
c_seconds_bucket{key_id="1",le="0.5"} 2
c_seconds_bucket{key_id="1",le="2"} 3
c_seconds_bucket{key_id="1",le="+Inf"} 4
c_seconds_sum{key_id="1"} 31.6
c_seconds_count{key_id="1"} 4
# HELP e Of e.
# TYPE e gauge
e 7
`
	if diff := cmp.Diff(want, string(s.Text())); diff != "" {
		t.Error(diff)
	}
	// By Prometheus's own parser, too.
	if problems, err := promlint.New(strings.NewReader(string(s.Text()))).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if v := counter.Value("1", odd); v != 3 {
		t.Errorf("the counter is %v", v)
	}
	counter.Delete("what", "y")
	s.Delete("key_id", "1")
	gauge.Reset()
	if text := string(s.Text()); !strings.HasPrefix(text, "# HELP e ") {
		t.Errorf("all but e was deleted: %s", text)
	}
}
