package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

func (s *stage) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// title opens a scene.
func (s *stage) title(text string) {
	s.scene++
	line := fmt.Sprintf("\n%d. %s", s.scene, text)
	if s.colours {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Println(line)
}

// note says something within a scene.
func (s *stage) note(format string, args ...any) { s.say("   "+format, args...) }

// tidy keeps the temporary folder out of the viewer's way.
func (s *stage) tidy(text string) string { return strings.ReplaceAll(text, s.dir, "…") }

// text shows output of a program, or a file.
func (s *stage) text(output string) {
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		fmt.Println(strings.TrimRight("     "+s.tidy(line), " "))
	}
}

var colour = map[health.Status]string{health.Healthy: "\x1b[32m", health.Unhealthy: "\x1b[33m", health.Error: "\x1b[31m"}

// table shows what the nodes' conditions say, and the reporters' processes.
func (s *stage) table(reports map[string][]health.Entry) {
	now, pids := time.Now(), s.pids()
	var b strings.Builder
	var statuses []health.Status
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "NODE\tKEY\tSTATUS\tKEK ID\tAGE\tEVERY\tREPORTER\tDETAIL") // a Builder never fails
	for _, node := range nodeNames {
		reporter := "-"
		if pid := pids[node]; pid != 0 {
			reporter = fmt.Sprintf("pid %d", pid)
		}
		for _, e := range reports[node] {
			statuses = append(statuses, e.Status)
			age := max(0, now.Sub(e.LastChecked)).Truncate(time.Second)
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", node, e.KeyID, e.Status, orDash(e.KEKID), age, e.Interval, reporter, orDash(s.tidy(e.Detail)))
		}
	}
	_ = w.Flush()
	for i, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if s.colours && i > 0 {
			line = colour[statuses[i-1]] + line + "\x1b[0m" // after the columns are laid out
		}
		fmt.Println("     " + line)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
