package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
)

func texts[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

var resultRow = regexp.MustCompile("(?m)^[-|] `([A-Za-z_]+)`")

// The values of these types are closed sets, which alerts and scripts compare.
func TestReferencesHaveEveryReasonAndResultOfTheReporter(t *testing.T) {
	for page, of := range map[string]struct {
		heading string
		want    []string
	}{
		"docs/reference/contract.md": {"\n### Reasons\n", texts(contract.Reasons)},
		"docs/reference/reporter.md": {"\n### Results of a write\n", texts(publish.Kinds)},
	} {
		_, section, _ := strings.Cut(read(t, page), of.heading)
		section, _, _ = strings.Cut(section, "\n#")
		var has []string
		for _, m := range resultRow.FindAllStringSubmatch(section, -1) {
			if m[1] != "result" && m[1] != "reason" { // the table's head
				has = append(has, m[1])
			}
		}
		slices.Sort(has)
		slices.Sort(of.want)
		if !slices.Equal(has, of.want) {
			t.Errorf("%s has %v, want %v", page, has, of.want)
		}
	}
}

func TestEveryManifestIsDescribed(t *testing.T) {
	page := read(t, "docs/reference/manifests.md")
	number := regexp.MustCompile(`^manifests/(?:common|monitoring|openshift)/0000_50_kms-health-operator(_\d\d_[\w-]+)\.yaml$`)
	tree(t, func(path string, _ func() string) {
		if m := number.FindStringSubmatch(path); len(m) > 1 && !strings.Contains(page, "…"+m[1]+"`") {
			t.Errorf("docs/reference/manifests.md does not describe %s", path)
		}
	})
}
