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

// shell shows what was done, as one would type it.
func (s *stage) shell(format string, args ...any) {
	fmt.Println("   $ " + s.tidy(fmt.Sprintf(format, args...)))
}

// tidy keeps the temporary folder out of the viewer's way.
func (s *stage) tidy(text string) string { return strings.ReplaceAll(text, s.dir, "…") }

// text shows output of a program.
func (s *stage) text(output string) {
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		fmt.Println("   " + s.tidy(line))
	}
}

var colour = map[health.Status]string{health.Healthy: "\x1b[32m", health.Unhealthy: "\x1b[33m", health.Error: "\x1b[31m"}

// table shows a report.
func (s *stage) table(r report) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "KEY\tSTATUS\tKEK ID\tCHECKED\tDETAIL") // a Builder never fails
	for _, e := range r.entries {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.KeyID, e.Status, orDash(e.KEKID), e.LastChecked.Format(time.TimeOnly), orDash(s.tidy(e.Detail)))
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i, line := range lines {
		if s.colours && i > 0 {
			line = colour[r.entries[i-1].Status] + line + "\x1b[0m" // after the columns are laid out
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
