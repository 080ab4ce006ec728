package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// constants are the texts of a file's constants.
func constants(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			for _, v := range s.(*ast.ValueSpec).Values {
				if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					texts = append(texts, text)
				}
			}
		}
	}
	return texts
}

var (
	reasonHeading = regexp.MustCompile("(?m)^###? ([A-Z][A-Za-z]+)$")
	reasonRow     = regexp.MustCompile("(?m)^\\| ((?:`[A-Z][A-Za-z_]+`(?:, )?)+) \\|")
	codeWord      = regexp.MustCompile("`([^`]+)`")
)

// described are the reasons that a runbook has: a heading, or the first cell of a row.
func described(text string) (reasons []string) {
	for _, m := range reasonHeading.FindAllStringSubmatch(text, -1) {
		reasons = append(reasons, m[1])
	}
	for _, row := range reasonRow.FindAllStringSubmatch(text, -1) {
		for _, m := range codeWord.FindAllStringSubmatch(row[1], -1) {
			reasons = append(reasons, m[1])
		}
	}
	return reasons
}

func TestRunbooksHaveEveryReasonAndNoOther(t *testing.T) {
	health := slices.DeleteFunc(constants(t, "pkg/rollup/conditions.go"), func(s string) bool { return slices.Contains(rollup.Types, s) })
	health = append(health, "NoConfiguration", "Configuration_Invalid") // ClusterOperator/kms-health
	clusterOperator := read(t, "pkg/operator/clusteroperator/evaluate.go")
	for _, reason := range health[len(health)-2:] {
		if !strings.Contains(clusterOperator, `"`+reason+`"`) {
			t.Errorf("the ClusterOperator has no reason %s any more", reason)
		}
	}
	delivery := slices.DeleteFunc(constants(t, "pkg/operator/delivery/reason.go"), func(s string) bool { return s == "KMSHealthDelivery" })
	for page, reasons := range map[string][]string{"docs/operate/conditions.md": health, "docs/operate/delivery.md": delivery} {
		has := described(read(t, page))
		for _, reason := range reasons {
			switch n := len(slices.DeleteFunc(slices.Clone(has), func(s string) bool { return s != reason })); n {
			case 0:
				t.Errorf("%s does not describe %s", page, reason)
			case 1:
			default:
				t.Errorf("%s describes %s %d times", page, reason, n)
			}
		}
		for _, reason := range has {
			if !slices.Contains(reasons, reason) {
				t.Errorf("%s describes %s, which is no reason of the code", page, reason)
			}
		}
	}
}

var resultRow = regexp.MustCompile("(?m)^\\| `([A-Za-z_]+)` \\|")

// The values of these types are closed sets, which alerts and scripts compare.
func TestReferencesHaveEveryReasonAndResultOfTheReporter(t *testing.T) {
	for page, of := range map[string]struct{ code, heading string }{
		"docs/reference/contract.md": {"pkg/health/reason.go", "\n### Reasons\n"},
		"docs/reference/reporter.md": {"pkg/reporter/publish/failure.go", "\n### Results of a write\n"},
	} {
		_, section, _ := strings.Cut(read(t, page), of.heading)
		section, _, _ = strings.Cut(section, "\n#")
		var has []string
		for _, m := range resultRow.FindAllStringSubmatch(section, -1) {
			if m[1] != "result" && m[1] != "reason" { // the table's head
				has = append(has, m[1])
			}
		}
		want := constants(t, of.code)
		slices.Sort(has)
		slices.Sort(want)
		if !slices.Equal(has, want) || len(want) == 0 {
			t.Errorf("%s has %v, want those of %s: %v", page, has, of.code, want)
		}
	}
}

var eventReason = regexp.MustCompile(`(?:x\.event\(|EventTypeNormal, )"(\w+)"`)

func TestEventsOfTheCodeAreDescribed(t *testing.T) {
	page, found := read(t, "docs/reference/events.md"), 0
	tree(t, func(path string, content func() string) {
		if !strings.HasPrefix(path, "pkg/operator/") || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" {
			return
		}
		for _, m := range eventReason.FindAllStringSubmatch(content(), -1) {
			found++
			if !strings.Contains(page, "| `"+m[1]+"` |") {
				t.Errorf("docs/reference/events.md does not describe %s of %s", m[1], path)
			}
		}
	})
	if found == 0 {
		t.Error("no Event was found in the code")
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
