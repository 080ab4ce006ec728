package show

import (
	"fmt"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// results are the words for the verdict of a check.
var results = map[view.Verdict]string{
	view.Healthy: "holds", view.Unhealthy: "FAILS", view.NotKnown: "UNKNOWN",
}

// Preflight is the output for people: whether all is ready, each check, and the problems of the status.
func Preflight(p *view.Preflight) string {
	text := wrapped("", p.Summary, terminal)
	server := ""
	for i := range p.Checks {
		c := &p.Checks[i]
		if c.APIServer != server {
			server = c.APIServer
			text += line("\n", server)
		}
		text += wrapped(fmt.Sprintf("  %-8s", results[c.Verdict]), c.Name+": "+c.Summary, terminal)
		for _, more := range [][2]string{{"Fix: ", c.Fix}, {"Do not: ", c.DoNot}} {
			if more[1] != "" {
				text += wrapped("          "+more[0], more[1], terminal)
			}
		}
	}
	for _, problem := range problems(&p.Status, terminal) {
		text += "\n" + problem
	}
	return text
}

// Trip is one line on a node's trip, for people who wait.
func Trip(t *view.Trip) string {
	state := "done"
	if !t.Done {
		state = "waiting for " + t.Waits
	}
	return line("  ", t.APIServer+" on "+t.Node+": "+state)
}
