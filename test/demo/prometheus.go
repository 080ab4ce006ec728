package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	prometheusProgram = ".tools/prometheus/prometheus"
	rulesFile         = "manifests/monitoring/0000_50_kms-health-operator_91_prometheusrule.yaml"
	dashboardFile     = "manifests/monitoring/dashboard/kms-health.json"
	// scrapeEvery is 30 s on OpenShift. A run of minutes needs more samples.
	scrapeEvery = 5 * time.Second
)

// prometheus is a real one, with the rules that are shipped.
type prometheus struct {
	*demo
	url   string
	began time.Time
}

// scrapeJob is an entry of scrape_configs.
type scrapeJob map[string]any

// scrapeTarget is an address with the labels that it has on a cluster.
func scrapeTarget(address, namespace, instance string) map[string]any {
	return map[string]any{"targets": []string{address}, "labels": map[string]string{"namespace": namespace, "instance": instance}}
}

// startPrometheus runs it until the end of the demo.
func startPrometheus(d *demo, jobs ...scrapeJob) *prometheus {
	address, err := controlplane.FreeAddress()
	d.must(err)
	dir := filepath.Join(d.dir, "prometheus")
	d.must(os.Mkdir(dir, 0o700))
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	raw, err := os.ReadFile(rulesFile)
	d.must(err)
	d.must(yaml.Unmarshal(raw, &rule))
	jobs = append(jobs, scrapeJob{"job_name": "prometheus", "static_configs": []any{scrapeTarget(address, prometheusNamespace, prometheusName)}})
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": scrapeEvery.String(), "scrape_timeout": "4s", "evaluation_interval": scrapeEvery.String()},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": jobs,
	})
	d.must(err)
	file := filepath.Join(dir, "prometheus.yaml")
	d.must(errors.Join(os.WriteFile(filepath.Join(dir, "rules.yaml"), rule.Spec, 0o600), os.WriteFile(file, config, 0o600)))
	program, err := filepath.Abs(prometheusProgram)
	d.must(err)
	d.startBinary(program, "prometheus.log", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	return &prometheus{demo: d, url: "http://" + address, began: time.Now()}
}

// series is one of a query's result.
type series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

// numbers returns how many of the values are any. The quantile of no observation is NaN.
func (s *series) numbers() (n int) {
	for _, v := range s.Values {
		if text, ok := v[1].(string); ok && text != "NaN" {
			n++
		}
	}
	return n
}

// over returns the series of a query since Prometheus began.
func (p *prometheus) over(query string) (all []series, err error) {
	answer := struct {
		Result *[]series `json:"result"`
	}{&all}
	stamp := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	err = p.get("query_range", &answer, url.Values{
		"query": {query}, "start": {stamp(p.began)}, "end": {stamp(time.Now())}, "step": {scrapeEvery.String()},
	})
	return all, err
}

// number returns the value of a query for one number, now.
func (p *prometheus) number(query string) (float64, error) {
	var all []struct {
		Value [2]any `json:"value"`
	}
	answer := struct {
		Result any `json:"result"`
	}{&all}
	if err := p.get("query", &answer, url.Values{"query": {query}}); err != nil || len(all) != 1 {
		return 0, cmp.Or(err, fmt.Errorf("%s: %d values", query, len(all)))
	}
	text, _ := all[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// get reads from the API of Prometheus.
func (p *prometheus) get(path string, into any, query url.Values) error {
	request, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Error string `json:"error"`
		Data  any    `json:"data"`
	}{Data: into}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Error != "" {
		return fmt.Errorf("%s: %s: %s", query.Get("query"), response.Status, strings.TrimSpace(string(raw)))
	}
	return nil
}

// dashboard is what there is to query of a dashboard of Grafana.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Query, AllValue string }
	}
	Rows []struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
}

// panels prints how many series each query returned, and requires some.
func (m *monitored) panels() {
	var d dashboard
	raw, err := os.ReadFile(dashboardFile)
	m.must(err)
	m.must(json.Unmarshal(raw, &d))
	m.title("The number of series of every query of the dashboard.")
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		var metric, label string
		if n, _ := fmt.Sscanf(strings.NewReplacer("(", " ", ",", " ", ")", " ").Replace(v.Query), "label_values %s %s", &metric, &label); n == 2 {
			var values []string
			m.must(m.prometheus.get("label/"+label+"/values", &values, url.Values{"match[]": {metric}}))
			m.note("The variable $%s is one of %s, or all of them, as here.", v.Name, strings.Join(values, ", "))
			variables["$"+v.Name] = v.AllValue
		}
	}
	const columns = "%6v  %-42s %s"
	m.note(columns, "SERIES", "PANEL", "QUERY")
	queries, empty := 0, 0
	for _, row := range d.Rows {
		m.note("        -- %s", row.Title)
		for _, p := range row.Panels {
			for _, t := range p.Targets {
				query := t.Expr
				for name, value := range variables {
					query = strings.ReplaceAll(query, name, value)
				}
				n := m.count(query)
				queries++
				if n == 0 {
					empty++
				}
				m.note(columns, n, p.Title, query)
			}
		}
	}
	if empty > 0 {
		m.fail("%d of %d queries of the dashboard returned no series", empty, queries)
	}
	m.note("Each of the %d queries returned series.", queries)
}

// count returns how many series of a query had a number. What a query returns where there
// is no series does not count.
func (m *monitored) count(query string) (n int) {
	all, err := m.prometheus.over(strings.TrimSuffix(query, " or vector(0)"))
	m.must(err)
	for i := range all {
		if all[i].numbers() > 0 {
			n++
		}
	}
	return n
}

// alerts prints which alerts were active, and requires that every rule could be evaluated.
func (m *monitored) alerts() {
	m.title("The alerts that were active, and the longest time of each.")
	all, err := m.prometheus.over("ALERTS")
	m.must(err)
	type alert struct{ name, state, severity string }
	longest, number := map[alert]time.Duration{}, map[alert]int{}
	for i := range all {
		s := &all[i]
		a := alert{s.Metric["alertname"], s.Metric["alertstate"], s.Metric["severity"]}
		longest[a] = max(longest[a], time.Duration(s.numbers())*scrapeEvery)
		number[a]++
	}
	var lines []line
	for _, a := range slices.SortedFunc(maps.Keys(number), func(a, b alert) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.state, a.state)) }) {
		lines = append(lines, line{cells: []string{a.name, a.severity, a.state, strconv.Itoa(number[a]), longest[a].String()}})
	}
	m.table("ALERT\tSEVERITY\tSTATE\tSERIES\tFOR", lines)
	failures, err := m.prometheus.number("sum(prometheus_rule_evaluation_failures_total)")
	m.must(err)
	if failures > 0 {
		m.fail("Prometheus could not evaluate a rule %v times: see its log", failures)
	}
}
