package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines bounds a page without its samples, unless it is generated: nobody reads a longer one in
// an outage.
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

var namedPage = regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|yaml)\b`)

func TestPagesNamedInSourcesExist(t *testing.T) {
	tree(t, func(path string, content func() string) {
		switch filepath.Ext(path) {
		case ".go", ".yaml", ".md", ".sh", "":
		default:
			return
		}
		for _, name := range namedPage.FindAllString(content(), -1) {
			if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
	})
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
		raw, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		if p.lines > maxLines && !strings.Contains(string(raw), "Do not edit") {
			t.Errorf("%s has %d lines, more than %d", path, p.lines, maxLines)
		}
	}
}

var (
	namedTest = regexp.MustCompile(`\b(?:Test|Benchmark)[A-Z]\w+(?:/\w+)?`)
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)[A-Z]\w*)\(`)
)

// A page that names a test as evidence is wrong when the test was renamed. The name of a
// part of a test may be cut, as a pattern for go test -run.
func TestTestsNamedInPagesExist(t *testing.T) {
	functions, sources := map[string]bool{}, ""
	tree(t, func(path string, content func() string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		text := content()
		sources += text
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			functions[m[1]] = true
		}
	})
	for _, p := range pages(t) {
		raw, err := os.ReadFile(filepath.Join("../..", p.path))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range namedTest.FindAllString(string(raw), -1) {
			function, part, _ := strings.Cut(name, "/")
			if !functions[function] {
				t.Errorf("%s names %s, which does not exist", p.path, function)
			}
			if part != "" && !strings.Contains(sources, `"`+strings.ReplaceAll(part, "_", " ")) {
				t.Errorf("%s names %s, which has no such part", p.path, name)
			}
		}
	}
}
