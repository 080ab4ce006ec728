package show

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

const (
	nodeColumn = 1 // it is shortened
	// maxKey and maxKEK bound identifiers in a table, in runes; nodes' names are shortened to
	// minNode on a narrow terminal.
	maxKey, maxKEK, minNode = 20, 16, 12
)

// table has a row for each plugin.
func table(s *view.Status, o Options) string {
	all := [][]string{{"API SERVER", "NODE", "KEY", "STATE", "KEK ID", "AGE"}}
	if o.Wide {
		all[0] = append(all[0], "CHECKED", "INTERVAL", "REPORTER")
	}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			all = append(all, cells(&a, &p, s.Time.Time, o))
		}
	}
	if len(all) == 1 {
		return ""
	}
	over, longest := -o.Width, 0
	for line := range strings.Lines(align(all)) {
		over = max(over, utf8.RuneCountInString(line)-1-o.Width)
	}
	for _, row := range all {
		longest = max(longest, utf8.RuneCountInString(row[nodeColumn]))
	}
	for _, row := range all {
		if over > 0 {
			row[nodeColumn] = middle(row[nodeColumn], max(longest-over, minNode))
		}
	}
	return align(all)
}

func align(all [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range all {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder has no errors
	return b.String()
}

func cells(a *view.APIServer, p *view.Plugin, now time.Time, o Options) []string {
	key, kek := orDash(p.KeyID), orDash(p.KEKID)
	if !o.Wide {
		key, kek = middle(key, maxKey), middle(kek, maxKEK)
	}
	if p.Write {
		key += " (write)"
	}
	old, checked, interval := "-", "-", "-"
	if p.LastChecked != nil {
		old, checked = age(now.Sub(p.LastChecked.Time)), p.LastChecked.UTC().Format(time.RFC3339)
	}
	if p.IntervalSeconds > 0 {
		interval = fmt.Sprintf("%ds", p.IntervalSeconds)
	}
	all := []string{orDash(a.Name), orDash(p.Node), key, clean(view.StateWords(p.State)), kek, old}
	if o.Wide {
		all = append(all, checked, interval, orDash(p.Reporter))
	}
	return all
}
