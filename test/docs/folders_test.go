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

func TestManifestsHasARowOfEveryFolder(t *testing.T) {
	page := read(t, "docs/reference/manifests.md")
	tree(t, func(path string, content func() string) {
		path, ok := strings.CutPrefix(path, "manifests/")
		folder := filepath.Dir(path)
		if !ok || folder == "." {
			return
		}
		if strings.HasPrefix(folder, "components/") {
			// Parts of a component, and the same component for a plain control plane, have no row.
			if filepath.Base(path) != "kustomization.yaml" || !strings.Contains(content(), "\nkind: Component\n") || filepath.Base(folder) == "kubernetes" {
				return
			}
		} else {
			folder, _, _ = strings.Cut(folder, "/")
		}
		if !strings.Contains(page, "`"+folder+"`") {
			t.Errorf("docs/reference/manifests.md has no row of %s", folder)
		}
	})
}
