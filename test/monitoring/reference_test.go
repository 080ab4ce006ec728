package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows are the cells of all table rows of a page of docs/reference that match.
func rows(t *testing.T, page string, row *regexp.Regexp) (all [][]string) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/reference/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range row.FindAllStringSubmatch(string(raw), -1) {
		all = append(all, m[1:])
	}
	return all
}

var (
	alertRow  = regexp.MustCompile(`(?m)^\| \[(\w+)\]\(\.\./operate/runbooks/(\w+)\.md\) \| (\w+) \| ([^|]+) \| ([^|]+) \|$`)
	metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| ?([^|]*?) ?\\| ([^|]+) \\|$")
)

func TestReferenceHasEveryAlert(t *testing.T) {
	var want, got []string
	for _, a := range readAlerts(t) {
		lasts := a.For
		if a.KeepFiringFor != "" {
			lasts += ", keeps " + a.KeepFiringFor
		}
		want = append(want, strings.Join([]string{a.Alert, a.Alert, a.Labels["severity"], lasts}, " | "))
	}
	for _, cells := range rows(t, "alerts.md", alertRow) {
		got = append(got, strings.Join(cells[:4], " | "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/reference/alerts.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReferenceHasEveryMetricWithItsLabels(t *testing.T) {
	described := map[string]bool{}
	ours := ourMetrics(t)
	for _, cells := range rows(t, "metrics.md", metricRow) {
		name, kind := cells[0], cells[1]
		m, exists := ours[name]
		if !exists || described[name] {
			t.Errorf("docs/reference/metrics.md describes %s, which does not exist, or twice", name)
		}
		described[name] = true
		var labels []string
		for _, l := range strings.Split(cells[2], ", ") {
			if l != "" {
				labels = append(labels, strings.Trim(l, "`"))
			}
		}
		slices.Sort(labels)
		slices.Sort(m.labels)
		if kind != m.kind || !slices.Equal(labels, m.labels) {
			t.Errorf("docs/reference/metrics.md: %s is a %s by %v; want a %s by %v", name, kind, labels, m.kind, m.labels)
		}
	}
	for name := range ours {
		if !described[name] {
			t.Errorf("docs/reference/metrics.md does not describe %s", name)
		}
	}
}
