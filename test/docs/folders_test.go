package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var row = regexp.MustCompile(`(?m)^((?:cmd|pkg|test|bindata|manifests)[\w./-]*) `)

// A package of test/ may be in the row of the folder above it.
func TestDevelopmentHasARowOfEveryPackage(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/development.md"), -1) {
		rows[m[1]] = true
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Errorf("docs/development.md has a row of %s, which does not exist", m[1])
		}
	}
	missing := map[string]bool{}
	tree(t, func(path string, _ func() string) {
		folder := filepath.Dir(path)
		above := filepath.Dir(folder)
		if filepath.Ext(path) == ".go" && !rows[folder] && !(strings.HasPrefix(folder, "test/") && (rows[above] || rows[filepath.Dir(above)])) {
			missing[folder] = true
		}
	})
	for folder := range missing {
		t.Errorf("docs/development.md has no row of %s", folder)
	}
}
