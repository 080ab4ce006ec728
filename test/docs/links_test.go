package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// maxLines bounds the lines of a page without its samples, unless it is generated: a longer page is useless in an
// outage.
const maxLines = 250

func TestLinksLeadToPagesAndHeadingsThatExist(t *testing.T) {
	all := pages(t)
	for _, p := range all {
		for _, to := range p.links {
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(to, "#")
			target := p.path
			if path != "" {
				target = filepath.Join(filepath.Dir(p.path), path)
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: %s: no such file", p.path, to)
			} else if anchor != "" && all[target] != nil && !all[target].anchors[anchor] {
				t.Errorf("%s: %s: no such heading", p.path, to)
			}
		}
	}
}

func TestEveryPageIsLinkedAndShort(t *testing.T) {
	linked := map[string]bool{"README.md": true}
	for _, p := range pages(t) {
		for _, to := range p.links {
			path, _, _ := strings.Cut(to, "#")
			linked[filepath.Join(filepath.Dir(p.path), path)] = true
		}
	}
	for path, p := range pages(t) {
		if !linked[path] {
			t.Errorf("no page links to %s", path)
		}
		raw := disk.Read(t, filepath.Join("../..", path))
		if p.lines > maxLines && !strings.Contains(string(raw), "Do not edit") {
			t.Errorf("%s has %d lines, more than %d", path, p.lines, maxLines)
		}
	}
}

var (
	namedPage = regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|yaml)\b`)
	namedTest = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
)

// Comments refer to pages, and pages refer to tests as evidence.
func TestNamedPagesAndTestsExist(t *testing.T) {
	functions, named := map[string]bool{}, map[string]string{}
	tree(t, func(path string, content func() string) {
		if !slices.Contains([]string{".go", ".yaml", ".md", ".sh", ""}, filepath.Ext(path)) {
			return
		}
		text := content()
		for _, name := range namedPage.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			functions[m[1]] = true
		}
		if filepath.Ext(path) == ".md" {
			for _, name := range namedTest.FindAllString(text, -1) {
				named[name] = path
			}
		}
	})
	for name, path := range named {
		if !functions[name] {
			t.Errorf("%s names %s, which does not exist", path, name)
		}
	}
}

var (
	item = regexp.MustCompile("(?m)^- `([A-Za-z_]+)`")
	kind = regexp.MustCompile(`(?m)^\t[A-Z]\w+ +Kind = "(\w+)"`)
)

// The results are a closed set, which alerts and scripts compare.
func TestReferenceHasEveryResultOfTheReporter(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/reference/reporter.md"), "\n### Results of a write\n")
	section, _, _ = strings.Cut(section, "\n#")
	must.Equal(t, "results", found(item, section), found(kind, read(t, "pkg/reporter/publish/failure.go")))
}

// found returns what the group of an expression matches in a text, sorted.
func found(expression *regexp.Regexp, text string) (all []string) {
	for _, m := range expression.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}
