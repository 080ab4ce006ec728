package show

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// Options of the output.
type Options struct {
	// Wide shows everything in full, a line for each row.
	Wide bool
	// NoHeaders leaves out the names of the columns.
	NoHeaders bool
	// Width is that of the terminal, in columns.
	Width int
	// Fits lays out a table that is wider than that in another way. Without it the columns
	// are always the same: for programs.
	Fits bool
	// Colour prints the states in colours.
	Colour bool
	// Doubtful means that the operator has not renewed its Lease, so that its conditions may
	// be outdated: show more from the reports.
	Doubtful bool
}

const (
	gap = "  " // between columns
	// indent is that of text below a row.
	indent = "    "
	// maxKey bounds a keyID in a table, which the writer of a report chooses, in runes.
	maxKey = 20
)

// Table is the state of every plugin, a row each with its details below it, and then the
// operator's conditions of each target.
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
		parts = append(parts, wrap(strings.Join(empty, ", ")+": nothing is reported", "", indent, o.Width))
	}
	return strings.Join(parts, "\n")
}

// The columns of a table.
const (
	targetColumn = iota
	nodeColumn
	keyColumn
	stateColumn
	kekColumn
	ageColumn
)

// cells are those of a row, and the text below it.
type cells struct {
	columns     []string
	detail      string
	paint       string // of the state
	target, kek string
	first       bool // of its target
}

func rows(s *view.Status, o Options) string {
	header := []string{"TARGET", "NODE", "KEY", "STATE", "KEK ID", "AGE"}
	if o.Wide {
		header = append(header, "FORM", "LAST CHECKED", "INTERVAL", "DETAIL")
	}
	short := shortIDs(s)
	if o.Wide {
		short = clean
	}
	var all []cells
	for i := range s.Targets {
		t := &s.Targets[i]
		for j := range t.Plugins {
			p := &t.Plugins[j]
			c := cells{columns: row(t, p, s.Time.Time, short, o.Wide), detail: why(p), paint: colour(p.State), first: j == 0, target: orDash(t.Target)}
			c.kek = c.columns[kekColumn]
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return ""
	}
	if o.Wide {
		for i := range all {
			all[i].columns, all[i].detail = append(all[i].columns, all[i].detail), ""
		}
		return lay(all, header, nil, o)
	}
	// On a terminal, the columns that do not fit are moved: the target into a line of its
	// own, then the KEK ID below the row.
	for _, moved := range [][]int{nil, {targetColumn}, {targetColumn, kekColumn}} {
		if !o.Fits || columnsWidth(all, header, moved) <= o.Width {
			return lay(all, header, moved, o)
		}
	}
	return list(all, o)
}

// kept are the columns that were not moved.
func kept(columns []string, moved []int) []string {
	var all []string
	for i, c := range columns {
		if !slices.Contains(moved, i) {
			all = append(all, c)
		}
	}
	return all
}

func widths(all []cells, header []string, moved []int) []int {
	w := make([]int, len(kept(header, moved)))
	measure := func(columnsOfRow []string) {
		for i, c := range kept(columnsOfRow, moved) {
			w[i] = max(w[i], columns(c))
		}
	}
	measure(header)
	for _, c := range all {
		measure(c.columns)
	}
	return w
}

func columnsWidth(all []cells, header []string, moved []int) int {
	total := 0
	for i, w := range widths(all, header, moved) {
		if i > 0 {
			total += len(gap)
		}
		total += w
	}
	return total
}

// lay makes a table with aligned columns.
func lay(all []cells, header []string, moved []int, o Options) string {
	w := widths(all, header, moved)
	var b strings.Builder
	line := func(columns []string, paint string) {
		var text strings.Builder
		for i, c := range kept(columns, moved) {
			padded := pad(c, w[i])
			if paint != "" && o.Colour && i == stateColumn-before(moved, stateColumn) {
				padded = paint + c + plain + padded[len(c):]
			}
			text.WriteString(padded + gap)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	if !o.NoHeaders {
		line(header, "")
	}
	for _, c := range all {
		if c.first && slices.Contains(moved, targetColumn) {
			b.WriteString(c.target + ":\n")
		}
		line(c.columns, c.paint)
		b.WriteString(c.below(slices.Contains(moved, kekColumn), o))
	}
	return b.String()
}

func before(moved []int, column int) (n int) {
	for _, i := range moved {
		if i < column {
			n++
		}
	}
	return n
}

// below is the text below a row.
func (c *cells) below(withKEK bool, o Options) string {
	text := ""
	if withKEK && c.kek != "-" {
		text = wrap("KEK ID "+c.kek, indent, indent, o.Width)
	}
	if c.detail != "" {
		text += wrap(c.detail, indent, indent, o.Width)
	}
	return text
}

// list shows rows whose columns do not fit, each over several lines.
func list(all []cells, o Options) string {
	var b strings.Builder
	for _, c := range all {
		if c.first {
			b.WriteString(c.target + ":\n")
		}
		b.WriteString(c.columns[nodeColumn] + "\n")
		state := c.columns[stateColumn]
		text := wrap("key "+c.columns[keyColumn]+", "+state+", "+c.columns[ageColumn], indent, indent, o.Width)
		if o.Colour {
			text = strings.Replace(text, state, c.paint+state+plain, 1)
		}
		b.WriteString(text + c.below(true, o))
	}
	return b.String()
}

func row(t *view.TargetStatus, p *view.Plugin, now time.Time, id func(string) string, wide bool) []string {
	key := orDash(p.KeyID)
	if !wide {
		key = middle(key, maxKey)
	}
	if p.Write {
		key += " (write)"
	}
	old := "-"
	if d, known := p.Age(now); known {
		old = age(d)
	}
	cells := []string{orDash(t.Target), orDash(p.Node), key, view.StateWords(p.State), orDash(id(p.KEKID)), old}
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
	return cells
}

// why is the reason, which is one word, and the detail.
func why(p *view.Plugin) string {
	reason, detail := clean(string(p.Reason)), strings.TrimSpace(clean(p.Detail))
	if reason == "" || detail == "" {
		return reason + detail
	}
	return reason + ": " + detail
}
