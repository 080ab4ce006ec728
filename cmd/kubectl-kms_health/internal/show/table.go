package show

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	nodeColumn, stateColumn = 1, 3 // they are shortened and painted
	// maxRows is how many rows a table may have with a row for each plugin; in a longer one, those
	// of healthy plugins that differ by their node are joined.
	maxRows = 9
	// maxKey and maxKEK bound identifiers in a table, in runes; nodes' names are shortened to
	// minNode on a narrow terminal.
	maxKey, maxKEK, minNode = 20, 16, 12
)

// row is one of the table: its cells, and the state for its colour.
type row struct {
	cells []string
	state rollup.State
}

// table has a row for each plugin.
func table(s *view.Status, o Options) string {
	header := row{cells: []string{"API SERVER", "NODE", "KEY", "STATE", "KEK ID", "AGE"}}
	if o.Wide {
		header.cells = append(header.cells, "CHECKED", "INTERVAL", "REPORTER")
	}
	all := append([]row{header}, rows(s, o)...)
	if len(all) == 1 {
		return ""
	}
	over, longest := -o.Width, 0
	for line := range strings.Lines(align(all)) {
		over = max(over, utf8.RuneCountInString(line)-1-o.Width)
	}
	for _, r := range all {
		longest = max(longest, utf8.RuneCountInString(r.cells[nodeColumn]))
	}
	for _, r := range all {
		if over > 0 {
			r.cells[nodeColumn] = middle(r.cells[nodeColumn], max(longest-over, minNode))
		}
		if o.Colour { // all of the same length
			r.cells[stateColumn] = colour(r.state) + r.cells[stateColumn] + plain
		}
	}
	return align(all)
}

func align(all []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range all {
		_, _ = fmt.Fprintln(w, strings.Join(r.cells, "\t"))
	}
	_ = w.Flush() // a Builder has no errors
	return b.String()
}

func rows(s *view.Status, o Options) (all []row) {
	plugins := 0
	for _, a := range s.APIServers {
		plugins += len(a.Plugins)
	}
	at, nodes := map[string]int{}, map[string]int{} // of the rows that stand for several nodes
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			same := fmt.Sprintf("%q %q %t %q", a.Name, p.KeyID, p.Write, p.KEKID)
			if nodes[same] == 0 || o.Wide || plugins <= maxRows || p.State != rollup.Healthy {
				all = append(all, row{cells(&a, &p, s.Time.Time, o), p.State})
			}
			if p.State != rollup.Healthy {
				continue
			}
			if nodes[same]++; nodes[same] == 1 {
				at[same] = len(all) - 1
			} else if !o.Wide && plugins > maxRows {
				all[at[same]].cells[nodeColumn] = fmt.Sprintf("%d nodes", nodes[same])
			}
		}
	}
	return all
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
