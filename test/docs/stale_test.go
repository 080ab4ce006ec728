package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// factor is how many intervals old a report may be, in words or figures.
	factor = regexp.MustCompile(`(?i)\b(\d+|two|three|four|five|six|seven|eight)( of (its|their))?( ×)? intervals?\b`)
	// generated is what the tables of pkg/contract give.
	generated = regexp.MustCompile(`(?s)BEGIN generated: .*?END generated`)
)

// TestStaleFactorIsWrittenOnce: what people read states it only where it is generated, so that it
// can be changed in one place.
func TestStaleFactorIsWrittenOnce(t *testing.T) {
	states := 0
	tree(t, func(path string, content func() string) {
		switch filepath.Ext(path) {
		case ".md", ".yaml", ".json", ".txt":
		default:
			return
		}
		if path == "CHANGELOG.md" {
			return
		}
		text := strings.ReplaceAll(content(), "`", "")
		for _, block := range generated.FindAllString(text, -1) {
			states += len(factor.FindAllString(block, -1))
		}
		for _, found := range factor.FindAllString(generated.ReplaceAllString(text, ""), -1) {
			t.Errorf("%s: states %q; say \"stale\", and link to docs/reference/contract.md#freshness", path, found)
		}
	})
	if states != 1 {
		t.Errorf("stated in %d generated places, want 1", states)
	}
}
