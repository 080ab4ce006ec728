package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDocumentationQuotesTheOutput(t *testing.T) {
	states := []string{"healthy.txt", "unhealthy.txt", "migration.txt", "stale.txt", "missing.txt", "disagree.txt", "must-gather.txt"}
	for name, goldens := range map[string][]string{
		"README.md":       states,
		"docs/reference/kubectl.md": append([]string{"unhealthy.explain.txt"}, states...),
	} {
		doc, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, golden := range goldens {
			text, err := os.ReadFile(filepath.Join("testdata", golden))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(doc), "```\n"+string(text)+"```\n") {
				t.Errorf("%s does not quote testdata/%s as it is", name, golden)
			}
		}
	}
}
