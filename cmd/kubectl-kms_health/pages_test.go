package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The documentation quotes outputs of testdata as they are.
func TestTheDocumentationQuotesTheOutput(t *testing.T) {
	for page, golden := range map[string]string{
		"README.md": "unhealthy.txt", "docs/reference/kubectl.md": "healthy.txt",
	} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		output, err := os.ReadFile(filepath.Join("testdata", golden))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```\n"+string(output)+"```\n") {
			t.Errorf("%s does not quote testdata/%s", page, golden)
		}
	}
}
