package contract

import (
	"strings"
	"testing"
)

func TestEveryReasonAndAlertHasOneShortRunbook(t *testing.T) {
	const most = 60
	seen := map[string]bool{}
	for _, g := range RunbookGroups {
		for _, r := range g.Rows {
			for _, name := range append(r.Alerts, r.Name) {
				if got, ok := RunbookOf(name); !ok || got.Name != r.Name || seen[name] {
					t.Errorf("%s: the runbook is %q, or there are two", name, got.Name)
				}
				seen[name] = true
			}
			words := len(strings.Fields(r.Means + " " + r.Check + " " + r.Fix))
			if r.Means == "" || words > most || r.Fix == "" && (r.NeedsAction || r.Alerted) {
				t.Errorf("%s: %d words, want at most %d, with a Means, and a Fix where action is needed", r.Name, words, most)
			}
			for _, text := range []string{r.Means, r.Check, r.Fix, r.DoNot} {
				if strings.ContainsAny(text, "\n[]") || strings.HasSuffix(text, ".") || strings.TrimSpace(text) != text {
					t.Errorf("%s: %q is not one line of plain text without a full stop", r.Name, text)
				}
			}
		}
	}
	if got, ok := RunbookOf("Other"); ok {
		t.Errorf("a runbook of none: %q", got.Name)
	}
}
