// Command tables writes what follows from the tables of pkg/contract into manifests and pages: it
// replaces the lines between
//
//	# BEGIN generated: NAME
//	# END generated
//
// (in Markdown <!-- BEGIN generated: NAME --> and <!-- END generated -->) by the template NAME of
// tables.tmpl, indented like the first of these lines. Run by go generate in manifests.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/kms-health/kms-health/pkg/contract"
)

//go:embed tables.tmpl
var text string

// roots have the files with such lines.
var roots = []string{"manifests", "docs", "README.md", "FAQ.md"}

// whole are files that people see as they are, without those lines: each has its template.
var whole = map[string]string{
	"pkg/config/v1alpha1/operator-openshift.yaml": "configuration",
	"pkg/contract/zz_generated_reasons.go":        "reasons",
}

var (
	begin = regexp.MustCompile(`^([ \t]*)(?:#|<!--) BEGIN generated: ([a-z-]+)(?: -->)?$`)
	end   = regexp.MustCompile(`^[ \t]*(?:#|<!--) END generated(?: -->)?$`)
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tables MODULE-DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "tables: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	t, err := parse()
	if err != nil {
		return err
	}
	for file, name := range whole {
		if err := t.write(filepath.Join(dir, file), name); err != nil {
			return err
		}
	}
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			return t.update(path)
		})
		if err != nil {
			return err
		}
	}
	return t.unused()
}

// write writes a whole file.
func (t *tables) write(file, name string) error {
	lines, err := t.lines(name, "")
	if err != nil {
		return err
	}
	content := []byte(strings.Join(lines, "\n") + "\n")
	if filepath.Ext(file) == ".go" {
		if content, err = format.Source(content); err != nil {
			return err
		}
	}
	return os.WriteFile(file, content, 0o644) //nolint:gosec // a file of the repository
}

// tables are the templates, and which of them were used.
type tables struct {
	templates *template.Template
	used      map[string]bool
}

func parse() (*tables, error) {
	t := &tables{used: map[string]bool{}}
	var err error
	t.templates, err = template.New("").Funcs(template.FuncMap{
		"join":     strings.Join,
		"constant": func(reason string) string { return strings.ReplaceAll(reason, "_", "") },
		"names":    names,
		"linked":   linked,
		"anchor":   strings.ToLower,
		"action":   action,
		"statuses": func() []string { return names("%s/status", contract.ResourceNames()) },
		"render": func(name, indent string) (string, error) {
			lines, err := t.lines(name, indent)
			return strings.Join(lines, "\n"), err
		},
	}).Parse(text)
	return t, err
}

// update replaces the generated parts of a file, if it has any.
func (t *tables) update(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines, err := t.replace(strings.Split(string(old), "\n"))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if updated := []byte(strings.Join(lines, "\n")); !bytes.Equal(old, updated) {
		return os.WriteFile(path, updated, 0o644) //nolint:gosec // a file of the repository, whose mode stays
	}
	return nil
}

func (t *tables) replace(lines []string) ([]string, error) {
	var replaced []string
	for i := 0; i < len(lines); i++ {
		replaced = append(replaced, lines[i])
		found := begin.FindStringSubmatch(lines[i])
		if found == nil {
			continue
		}
		generated, err := t.lines(found[2], found[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		length := slices.IndexFunc(lines[i:], end.MatchString)
		if length < 0 {
			return nil, fmt.Errorf("line %d: no line \"END generated\" follows", i+1)
		}
		replaced = append(append(replaced, generated...), lines[i+length])
		i += length
	}
	return replaced, nil
}

// lines are what a template makes of the tables.
func (t *tables) lines(name, indent string) ([]string, error) {
	var b bytes.Buffer
	if err := t.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	t.used[name] = true
	lines := strings.Split(strings.Trim(b.String(), "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = indent + line
		}
	}
	return lines, nil
}

// unused is an error for a template that no file has. Those named part-… are parts of others.
func (t *tables) unused() error {
	for _, one := range t.templates.Templates() {
		if name := one.Name(); name != "" && !strings.HasPrefix(name, "part-") && !t.used[name] {
			return fmt.Errorf("no file has a line \"BEGIN generated: %s\"", name)
		}
	}
	return nil
}

// data is what templates see.
var data = struct {
	Resources  []contract.Resource
	Plurals    []string
	APIServers []string // their names
	Namespaces []string // theirs
	Group      string
	Object     string // the name of each resource's one object

	StaleIntervals int
	Reasons        []string
	Statuses       []status
	Runbooks       []contract.RunbookGroup
	Events         []contract.Event
	Metrics        map[string][]contract.Metric
}{
	Resources: contract.Resources, Plurals: contract.ResourceNames(),
	APIServers: each(func(s contract.APIServer) string { return s.Name }),
	Namespaces: each(func(s contract.APIServer) string { return s.Namespace }),
	Group:      contract.OperatorGroup, Object: contract.OperatorObject,
	StaleIntervals: contract.StaleIntervals, Reasons: reasons(), Statuses: statuses(),
	Runbooks: contract.RunbookGroups, Events: contract.Events,
	Metrics: map[string][]contract.Metric{
		"Rollup": contract.RollupMetrics, "Operator": contract.OperatorMetrics, "Reporter": contract.ReporterMetrics,
	},
}

// status is a status of a condition, and the reasons that give it, the most severe first.
type status struct {
	Condition, Status string
	Reasons           []string
}

func statuses() (all []status) {
	for _, c := range []struct {
		condition string
		of        func(contract.RollupReason) string
	}{
		{contract.PluginsDegraded, func(r contract.RollupReason) string { return r.Degraded }},
		{contract.HealthReporting, func(r contract.RollupReason) string { return r.Reporting }},
		{contract.WriteKeyAgreed, func(r contract.RollupReason) string { return r.Agreed }},
	} {
		for _, name := range []string{"True", "False", "Unknown"} {
			if of := only(func(r contract.RollupReason) bool { return c.of(r) == name }); len(of) > 0 {
				all = append(all, status{c.condition, name, of})
			}
		}
	}
	return all
}

// action reports whether a reason requires it.
func action(reason string) bool {
	return len(only(func(r contract.RollupReason) bool { return r.Reason == reason && r.NeedsAction })) > 0
}

// only are the reasons for which is returns true, the most severe first.
func only(is func(contract.RollupReason) bool) (all []string) {
	for _, r := range contract.RollupReasons {
		if is(r) {
			all = append(all, r.Reason)
		}
	}
	return all
}

// reasons are those of both tables.
func reasons() []string {
	all := slices.Clone(contract.ClusterOperatorReasons)
	for _, r := range contract.RollupReasons {
		all = append(all, r.Reason)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var quoted = regexp.MustCompile("`(\\w+)`")

// linked makes each name of a runbook in a text a link to its block in the same page.
func linked(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(name string) string {
		r, found := contract.RunbookOf(strings.Trim(name, "`"))
		if !found {
			return name
		}
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(r.Name))
	})
}

func each(of func(contract.APIServer) string) []string {
	var all []string
	for _, r := range contract.Resources {
		all = append(all, of(r.APIServer))
	}
	return all
}

// names puts each value into a pattern with one %s.
func names(pattern string, values []string) []string {
	var all []string
	for _, value := range values {
		all = append(all, fmt.Sprintf(pattern, value))
	}
	return all
}
