package main

import (
	"maps"
	"strings"
	"testing"
)

func TestSeriesAreReadWithTheirLabels(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want map[string]float64
		bad  bool
	}{
		"nothing":  {"", nil, false},
		"comments": {"# HELP a b c\n# TYPE a gauge\n\n", nil, false},
		"plain":    {"go_goroutines 25\n", map[string]float64{goroutines: 25}, false},
		"large":    {"go_memstats_heap_alloc_bytes 2.097152e+06\n", map[string]float64{heap: 2 << 20}, false},
		"labels": {"kms_health_reporter_writes_total{form=\"Condition\",result=\"success\"} 3\n" +
			"kms_health_reporter_writes_total{form=\"Condition\",result=\"timeout\"} 4\n",
			map[string]float64{writes: 3, strings.Replace(writes, "success", "timeout", 1): 4}, false},
		"a space in a label": {`x{a="b c"} 1`, map[string]float64{`x{a="b c"}`: 1}, false},
		"no number":          {"go_goroutines many\n", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMetrics(strings.NewReader(tt.text))
			if (err != nil) != tt.bad || !maps.Equal(got, tt.want) {
				t.Errorf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
}
