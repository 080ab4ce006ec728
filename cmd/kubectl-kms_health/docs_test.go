package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// samples are the code blocks of a document that look like an output of this program.
var samples = regexp.MustCompile("(?m)^```\n((?:Healthy|Unhealthy|Not known) [^`]*)```$")

// The documentation may quote any of the outputs in testdata, and quotes them as they are.
func TestTheDocumentationQuotesTheOutput(t *testing.T) {
	goldens := map[string]string{}
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		goldens[string(text)] = filepath.Base(path)
	}
	for name, all := range map[string][]string{
		"README.md":                 {"unhealthy.120.txt"},
		"docs/reference/kubectl.md": {"healthy.80.txt"},
	} {
		doc, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		var quoted []string
		for _, found := range samples.FindAllStringSubmatch(string(doc), -1) {
			golden, known := goldens[found[1]]
			if !known {
				first, _, _ := strings.Cut(found[1], "\n")
				t.Errorf("%s: no file of testdata is the sample that begins with %q:\n%s", name, first, found[1])
			}
			quoted = append(quoted, golden)
		}
		if len(quoted) == 0 {
			t.Errorf("%s quotes no output", name)
		}
		for _, golden := range all {
			if !slices.Contains(quoted, golden) {
				t.Errorf("%s does not quote testdata/%s", name, golden)
			}
		}
	}
}
