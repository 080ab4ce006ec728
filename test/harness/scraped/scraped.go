// Package scraped reads metrics in Prometheus's text format, for tests.
package scraped

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Value returns the value of a series; 0 if there is none. labels are in the order of the metric's table.
func Value(text []byte, m contract.Metric, labels ...string) float64 {
	var pairs []string
	for i, value := range labels {
		pairs = append(pairs, fmt.Sprintf("%s=%q", m.Labels[i], value))
	}
	series := m.Name + " "
	if len(pairs) > 0 {
		series = m.Name + "{" + strings.Join(pairs, ",") + "} "
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, series); found {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return n
		}
	}
	return 0
}
