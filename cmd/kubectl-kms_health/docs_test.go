package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDocumentationQuotesWhatIsPrinted(t *testing.T) {
	doc, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, golden := range []string{"healthy.txt", "ill.txt", "migration.txt", "stale.txt", "missing.txt", "disagree.txt", "must-gather.txt", "ill.explain.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", golden))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), "```\n"+string(text)+"```\n") {
			t.Errorf("docs/kubectl.md does not quote testdata/%s as it is", golden)
		}
	}
}
