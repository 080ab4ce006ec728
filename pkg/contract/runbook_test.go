package contract

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryReasonHasOneRunbook(t *testing.T) {
	reasons := slices.Clone(ClusterOperatorReasons)
	for _, r := range RollupReasons {
		reasons = append(reasons, r.Reason)
	}
	for r := range Reasons {
		reasons = append(reasons, string(r))
	}
	var names []string
	for _, g := range RunbookGroups {
		for _, r := range g.Runbooks {
			if !strings.HasPrefix(r.Name, "KMS") { // else it is that of an alert: see test/monitoring
				names = append(names, r.Name)
			}
		}
	}
	slices.Sort(reasons)
	slices.Sort(names)
	if !slices.Equal(names, reasons) {
		t.Errorf("runbooks of %v\nwant %v", names, reasons)
	}
}

func TestRunbooksAreShortTextsOfOneLine(t *testing.T) {
	const most = 60
	for _, g := range RunbookGroups {
		for _, r := range g.Runbooks {
			words := len(strings.Fields(r.Means + " " + r.Check + " " + r.Fix))
			if r.Means == "" || r.Fix == "" || words > most {
				t.Errorf("%s: %d words, want at most %d, of which both Means and Fix have some", r.Name, words, most)
			}
			for _, text := range []string{r.Means, r.Check, r.Fix, r.DoNot} {
				if strings.ContainsAny(text, "\n[]") || strings.HasSuffix(text, ".") || strings.TrimSpace(text) != text {
					t.Errorf("%s: %q is not one line of plain text without a full stop", r.Name, text)
				}
			}
		}
	}
}
