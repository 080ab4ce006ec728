package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// rows are the parts of all lines of a page of docs/reference that match.
func rows(t *testing.T, page string, row *regexp.Regexp) (all [][]string) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/reference/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range row.FindAllStringSubmatch(string(raw), -1) {
		all = append(all, m[1:])
	}
	return all
}

var alertRow = regexp.MustCompile(`(?m)^- \[(\w+)\]\(\.\./operate/runbooks\.md#(\w+)\) \((\w+), ([^)]+)\)$`)

func TestReferenceHasEveryAlert(t *testing.T) {
	var want, got []string
	for _, a := range readAlerts(t) {
		lasts := a.For
		if a.KeepFiringFor != "" {
			lasts += ", keeps " + a.KeepFiringFor
		}
		runbook, _ := contract.RunbookOf(a.Alert)
		want = append(want, strings.Join([]string{a.Alert, strings.ToLower(runbook.Name), a.Labels["severity"], lasts}, " | "))
	}
	for _, cells := range rows(t, "alerts.md", alertRow) {
		got = append(got, strings.Join(cells[:4], " | "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/reference/alerts.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
