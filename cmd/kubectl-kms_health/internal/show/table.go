package show

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// Options of a table.
type Options struct {
	// Wide shows everything in full.
	Wide bool
	// Width is that of the terminal, in columns.
	Width int
	// Colour prints the states in colours.
	Colour bool
	// Doubtful means that the operator has not renewed its Lease, so that its conditions may
	// be outdated: show more from the reports.
	Doubtful bool
}

const (
	gap = "  " // between columns
	// minDetail is the shortest width of a detail, also in a narrow terminal.
	minDetail = 20
)

// Table is the state of every plugin, a line each, and below it the operator's conditions
// of each target.
func Table(s *view.Status, o Options) string {
	var parts, empty []string
	if table := rows(s, o); table != "" {
		parts = append(parts, table)
	}
	for i := range s.Targets {
		t := &s.Targets[i]
		if words := below(t, o); words != "" {
			parts = append(parts, words)
		} else if len(t.Plugins) == 0 {
			empty = append(empty, name(t))
		}
	}
	if len(empty) > 0 {
		parts = append(parts, strings.Join(empty, ", ")+": nothing is reported\n")
	}
	return strings.Join(parts, "\n")
}

// Columns of a row.
const stateColumn = 3

func rows(s *view.Status, o Options) string {
	header := []string{"TARGET", "NODE", "KEY", "STATE", "KEK ID", "AGE"}
	if o.Wide {
		header = append(header, "FORM", "LAST CHECKED", "INTERVAL")
	}
	lines := [][]string{append(header, "DETAIL")}
	short := shortIDs(s)
	if o.Wide {
		short = clean
	}
	var paint []string
	for _, t := range s.Targets {
		for _, p := range t.Plugins {
			lines = append(lines, row(&t, &p, s.Time.Time, short, o.Wide))
			paint = append(paint, colour(p.State))
		}
	}
	if len(lines) == 1 {
		return ""
	}
	widths := make([]int, len(lines[0])-1)
	for _, cells := range lines {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	taken := len(widths) * len(gap)
	for _, w := range widths {
		taken += w
	}
	var b strings.Builder
	for n, cells := range lines {
		var line strings.Builder
		for i, w := range widths {
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(cells[i])) + gap
			if i == stateColumn && n > 0 && o.Colour {
				cells[i] = paint[n-1] + cells[i] + plain
			}
			line.WriteString(cells[i] + pad)
		}
		detail := cells[len(widths)]
		if !o.Wide {
			detail = cut(detail, max(o.Width-taken, minDetail))
		}
		b.WriteString(strings.TrimRight(line.String()+detail, " ") + "\n")
	}
	return b.String()
}

func row(t *view.TargetStatus, p *view.Plugin, now time.Time, id func(string) string, wide bool) []string {
	key := orDash(p.KeyID)
	if p.Write {
		key += " (write)"
	}
	old := "-"
	if d, known := p.Age(now); known {
		old = age(d)
	}
	cells := []string{orDash(t.Target), orDash(p.Node), key, StateWords(p.State), orDash(id(p.KEKID)), old}
	if wide {
		checked, interval := "-", "-"
		if p.LastChecked != nil {
			checked = p.LastChecked.UTC().Format(time.RFC3339)
		}
		if p.IntervalSeconds > 0 {
			interval = strconv.FormatInt(p.IntervalSeconds, 10) + "s"
		}
		cells = append(cells, orDash(string(p.Form)), checked, interval)
	}
	return append(cells, why(p))
}

// why is the reason, which is one word, and the detail.
func why(p *view.Plugin) string {
	reason, detail := clean(string(p.Reason)), strings.TrimSpace(clean(p.Detail))
	if reason == "" || detail == "" {
		return reason + detail
	}
	return reason + ": " + detail
}
