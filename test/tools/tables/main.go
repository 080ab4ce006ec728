// Command tables generates parts of manifests and pages from the tables of pkg/contract. It
// replaces the lines between
//
//	# BEGIN generated: NAME
//	# END generated
//
// (in Markdown <!-- BEGIN generated: NAME --> and <!-- END generated -->) by the result of the
// template NAME in tables.tmpl, indented like the BEGIN line. go generate in manifests runs it.
package main

import (
	_ "embed"
	"errors"
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

// roots are the files and folders with such lines.
var roots = []string{"manifests", "docs", "README.md", "FAQ.md"}

// whole has files that are generated completely, without such lines, and the template of each.
var whole = map[string]string{
	"pkg/config/v1alpha1/operator-openshift.yaml": "configuration",
	"pkg/contract/zz_generated_reasons.go":        "reasons",
}

// block matches a generated block: the indent, the template's name, and the generated lines.
var block = regexp.MustCompile(
	`(?s)([ \t]*)(?:#|<!--) BEGIN generated: ([a-z-]+)(?: -->)?\n(.*?)[ \t]*(?:#|<!--) END generated`)

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
	t, err := parse(filepath.Join(dir, "pkg/config/v1alpha1"))
	if err != nil {
		return err
	}
	for file, name := range whole {
		content, err := t.render(name, "")
		if err == nil && filepath.Ext(file) == ".go" {
			content, err = formatted(content)
		}
		if err != nil {
			return err
		}
		//nolint:gosec // a file of the repository
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
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
	return nil
}

func formatted(source string) (string, error) {
	content, err := format.Source([]byte(source))
	return string(content), err
}

type tables struct{ *template.Template }

// parse reads the templates, for configuration types in a folder.
func parse(types string) (*tables, error) {
	c, err := readConfiguration(types)
	if err != nil {
		return nil, err
	}
	t := &tables{}
	t.Template, err = template.New("").Funcs(template.FuncMap{
		"join":     strings.Join,
		"constant": func(reason string) string { return strings.ReplaceAll(reason, "_", "") },
		"names":    names,
		"linked":   linked,
		"sentence": func(text string) string { return strings.ToUpper(text[:1]) + text[1:] },
		"anchor":   strings.ToLower,
		"alerted":  func() []string { return only(func(r contract.Row) bool { return r.NeedsAction && !r.Alerted }) },
		"action":   func(reason string) bool { return contract.RollupReasonOf(reason).NeedsAction },
		"statuses": func() []string { return names("%s/status", contract.ResourceNames()) },
		"types":    c.types,
		"render":   t.render,
	}).Parse(text)
	return t, err
}

// update replaces the generated parts of a file, if it has any.
func (t *tables) update(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var errs []error
	blocks := 0
	updated := block.ReplaceAllStringFunc(string(old), func(found string) string {
		blocks++
		parts := block.FindStringSubmatch(found)
		generated, err := t.render(parts[2], parts[1])
		errs = append(errs, err)
		head, tail, _ := strings.Cut(found, "\n")
		return head + "\n" + generated + tail[len(parts[3]):]
	})
	if begun := strings.Count(string(old), " BEGIN generated: "); begun != blocks {
		errs = append(errs, fmt.Errorf("%d blocks begin, and %d end", begun, blocks))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if updated != string(old) {
		return os.WriteFile(path, []byte(updated), 0o644) //nolint:gosec // a file of the repository; its mode does not change
	}
	return nil
}

// render returns the lines of a template.
func (t *tables) render(name, indent string) (string, error) {
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	lines := strings.Split(strings.Trim(b.String(), "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = indent + line
		}
	}
	return strings.Join(lines, "\n") + "\n", nil
}

// data is the data of the templates.
var data = struct {
	Resources  []contract.Resource
	Plurals    []string
	APIServers []string // names
	Namespaces []string // of the API servers
	Group      string
	Object     string // the name of the object of each resource

	StaleIntervals int
	PluginReasons  []contract.Row
	Reasons        []string
	Statuses       []status
	Conditions     []contract.Row
	Runbooks       any
	Events         []contract.Event
	Metrics        map[string][]contract.Metric
}{
	Resources: contract.Resources, Plurals: contract.ResourceNames(),
	APIServers: each(func(s contract.APIServer) string { return s.Name }),
	Namespaces: each(func(s contract.APIServer) string { return s.Namespace }),
	Group:      contract.OperatorGroup, Object: contract.OperatorObject,
	StaleIntervals: contract.StaleIntervals, PluginReasons: contract.PluginReasons, Reasons: reasons(), Statuses: statuses(),
	Conditions: contract.Conditions,
	Runbooks:   contract.RunbookGroups, Events: contract.Events,
	Metrics: map[string][]contract.Metric{
		"Rollup": contract.RollupMetrics, "Operator": contract.OperatorMetrics, "Reporter": contract.ReporterMetrics,
	},
}

// status is a status of a condition, and the reasons that cause it, the most severe first.
type status struct {
	Condition, Status string
	Reasons           []string
}

func statuses() (all []status) {
	for _, c := range []struct {
		condition string
		of        func(contract.Row) string
	}{
		{contract.PluginsDegraded, func(r contract.Row) string { return r.Degraded }},
		{contract.HealthReporting, func(r contract.Row) string { return r.Reporting }},
		{contract.WriteKeyAgreed, func(r contract.Row) string { return r.Agreed }},
	} {
		for _, name := range []string{"True", "False", "Unknown"} {
			if of := only(func(r contract.Row) bool { return c.of(r) == name }); len(of) > 0 {
				all = append(all, status{c.condition, name, of})
			}
		}
	}
	return all
}

// only returns the reasons for which is returns true, the most severe first.
func only(is func(contract.Row) bool) (all []string) {
	for _, r := range contract.RollupReasons {
		if is(r) {
			all = append(all, r.Name)
		}
	}
	return all
}

// reasons returns the reasons of both tables.
func reasons() (all []string) {
	for _, r := range slices.Concat(contract.RollupReasons, contract.ClusterOperatorReasons) {
		all = append(all, r.Name)
	}
	slices.Sort(all)
	return all
}

var quoted = regexp.MustCompile("`(\\w+)`")

// linked replaces each name of a runbook in a text by a link to its block on the same page.
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

// names inserts each value into a pattern with one %s.
func names(pattern string, values []string) []string {
	var all []string
	for _, value := range values {
		all = append(all, fmt.Sprintf(pattern, value))
	}
	return all
}
