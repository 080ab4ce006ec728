package monitoring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/version"
)

// metric is one of ours, as the code declares it.
type metric struct {
	kind   string // gauge, counter, histogram
	labels []string
	file   string
}

// ourMetrics are all that the code of both programs declares: literals of the options of
// package prometheus, and calls of NewDesc, which are gauges here.
func ourMetrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	add := func(name string, m metric) {
		if before, known := all[name]; known {
			t.Errorf("%s is declared in %s and %s", name, before.file, m.file)
		}
		all[name] = m
	}
	for _, folder := range []string{"../../pkg", "../../cmd"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if name, m, ok := declared(call); ok {
						m.file = path
						add(name, m)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 35 {
		t.Fatalf("%d metrics", len(all))
	}
	return all
}

// declared is the metric that a call of prometheus.NewX declares.
func declared(call *ast.CallExpr) (name string, m metric, ok bool) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", metric{}, false
	}
	pkg, ok := function.X.(*ast.Ident)
	if !ok || pkg.Name != "prometheus" || !strings.HasPrefix(function.Sel.Name, "New") || len(call.Args) == 0 {
		return "", metric{}, false
	}
	if function.Sel.Name == "NewDesc" {
		return text(call.Args[0]), metric{kind: "gauge", labels: texts(call.Args[2])}, true
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return "", metric{}, false
	}
	m.kind = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(function.Sel.Name, "New"), "Vec"), "Func"))
	for _, element := range options.Elts {
		pair, isPair := element.(*ast.KeyValueExpr)
		if !isPair {
			continue
		}
		switch pair.Key.(*ast.Ident).Name {
		case "Name":
			name = text(pair.Value)
		case "ConstLabels":
			m.labels = constLabels(pair.Value)
		}
	}
	if strings.HasSuffix(function.Sel.Name, "Vec") {
		m.labels = texts(call.Args[1])
	}
	return name, m, name != ""
}

// constLabels are those of a literal, or of version.Labels.
func constLabels(e ast.Expr) (labels []string) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return slices.Sorted(maps.Keys(version.Labels()))
	}
	for _, label := range literal.Elts {
		labels = append(labels, text(label.(*ast.KeyValueExpr).Key))
	}
	return labels
}

func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, _ := strconv.Unquote(literal.Value)
	return s
}

func texts(e ast.Expr) (all []string) {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, one := range list.Elts {
		all = append(all, text(one))
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
func unknown(query string, ours map[string]metric, theirs map[string][]string) (problems []string) {
	labels := func(name string) (of []string, ok bool) {
		if m, known := ours[name]; known {
			return append(slices.Clone(m.labels), "namespace", "job", "instance"), true
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if m, known := ours[strings.TrimSuffix(name, suffix)]; known && m.kind == "histogram" {
				return append(slices.Clone(m.labels), "le", "namespace", "job", "instance"), true
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
	ours, theirs := ourMetrics(t), seriesOf(t, recorded)
	for _, a := range readAlerts(t) {
		for _, query := range append([]string{a.Expr}, a.Annotations["description"]) {
			for _, problem := range unknown(query, ours, theirs) {
				t.Errorf("%s: %s", a.Alert, problem)
			}
		}
	}
	for query, want := range map[string]int{
		`kms_health_condition{condition="x",status=~"y"}`:                                0,
		`kms_health_conditions`:                                                          1,
		`kms_health_condition{state="x"}`:                                                1,
		`rate(kms_health_reporter_probe_duration_seconds_bucket{key_id="1",le="2"}[5m])`: 0,
		`kms_health_condition_bucket`:                                                    1,
		`apiserver_no_such_total`:                                                        1,
	} {
		if got := unknown(query, ours, theirs); len(got) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}
