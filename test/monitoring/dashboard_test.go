package monitoring

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

const dashboardFile = "../../manifests/monitoring/dashboard/kms-health.json"

type panel struct {
	Title       string
	Type        string
	Description string
	Targets     []struct{ Expr, LegendFormat string }
}

type dashboard struct {
	Title      string
	UID        string
	Templating struct {
		List []struct{ Name, Query string }
	}
	Rows []struct {
		Title  string
		Panels []panel
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	raw := disk.Read(t, dashboardFile)
	must.Succeed(t, json.Unmarshal(raw, &d))
	return d
}

// queries returns the queries of the dashboard by panel, with its variables replaced.
func (d *dashboard) queries() (all map[string][]string) {
	all = map[string][]string{}
	for _, row := range d.Rows {
		for _, p := range row.Panels {
			for _, target := range p.Targets {
				name := row.Title + ": " + p.Title
				all[name] = append(all[name], strings.ReplaceAll(target.Expr, "$api_server", ".+"))
			}
		}
	}
	return all
}

func TestQueriesOfTheDashboardAreOnMetricsThatExist(t *testing.T) {
	d := readDashboard(t)
	ours, theirs := ourMetrics(), labelsOf(readRecording(t))
	for name, queries := range d.queries() {
		for _, query := range queries {
			for _, problem := range unknown(query, ours, theirs) {
				t.Errorf("%s: %s", name, problem)
			}
			if strings.Contains(query, "$") {
				t.Errorf("%s: a variable that is not the target: %s", name, query)
			}
		}
	}
	for _, v := range d.Templating.List {
		if strings.HasPrefix(v.Query, "label_values(") {
			if problems := unknown(v.Query, ours, theirs); len(problems) > 0 {
				t.Errorf("variable %s: %v", v.Name, problems)
			}
		}
	}
}

// An age that needs two machines' clocks is wrong where they differ. A reader must know that of these panels alone.
func TestPanelsSayThatTheyCompareTwoClocks(t *testing.T) {
	d := readDashboard(t)
	for _, row := range d.Rows {
		for _, p := range row.Panels {
			for _, target := range p.Targets {
				compares, says := strings.Contains(target.Expr, "time()"), strings.Contains(p.Description, "clock")
				must.Equal(t, p.Title+" has its clocks in its description", says, compares)
			}
		}
	}
}

// promtool only checks rules, so each query becomes the expression of one.
func TestPrometheusParsesTheQueriesOfTheDashboard(t *testing.T) {
	d := readDashboard(t)
	var rules []map[string]string
	for _, queries := range d.queries() {
		for _, query := range queries {
			rules = append(rules, map[string]string{"record": fmt.Sprintf("query:%d", len(rules)), "expr": query})
		}
	}
	raw, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	must.Succeed(t, err)
	promtool(t, raw, "check", "rules", "tests.yaml")
}

// OpenShift's console and Grafana both support these types of panels.
func TestConsoleShowsThePanels(t *testing.T) {
	d := readDashboard(t)
	for _, row := range d.Rows {
		for _, p := range row.Panels {
			if p.Type != "graph" && (p.Type != "singlestat" || len(p.Targets) != 1) {
				t.Errorf("%s: a panel of type %s with %d queries", p.Title, p.Type, len(p.Targets))
			}
		}
	}
}
