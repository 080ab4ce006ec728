// Package show formats a view.Status: as text for people, or encoded. It contains no decisions, and does not write.
package show

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Status is the output for people: the verdict; the problems, each with the next command; the
// table; and the conditions that are not as expected. Of one node it has everything. If it is wide,
// nothing is shortened.
func Status(s *view.Status, wide bool) string {
	full := wide || s.Node != ""
	parts := append([]string{line("", s.Summary)}, problems(s, 0)...)
	conditions := ""
	for _, a := range s.APIServers {
		for _, c := range a.Conditions {
			if !full && s.Shown(a.Name, c.Reason) {
				c.Message = "" // it repeats the problems
			}
			if s.Node != "" || !view.AsExpected(&c) {
				conditions += condition(a.Name, &c, s.Time.Time)
			}
		}
	}
	if conditions != "" && !s.Operator.ConditionsHold() {
		conditions = "As last written by the operator, which does not run:\n" + conditions
	}
	for _, part := range []string{table(s, wide), conditions, history(s)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

// problems returns the problems of a status, each with its fix. If width is not 0, lines but for commands are at most
// as long.
func problems(s *view.Status, width int) (parts []string) {
	shown := map[string]bool{"": true}
	for _, p := range s.Problems {
		text := problem(&p, width)
		if p.AllNodes {
			text += wrapped("  All nodes: ", "the KMS itself, or what they share. Do not restart an API server", width)
		}
		for _, more := range [][2]string{{"  Fix: ", p.Fix}, {"  Do not: ", p.DoNot}} {
			if !shown[more[1]] { // several may have one cause
				text, shown[more[1]] = text+wrapped(more[0], more[1], width), true
			}
		}
		parts = append(parts, text)
	}
	return parts
}

// line returns external text as one line.
func line(label, text string) string { return wrapped(label, text, 0) }

// block is external text of several lines, indented, without empty lines.
func block(lines string, width int) (text string) {
	for l := range strings.Lines(lines) {
		if strings.TrimSpace(contract.Clean(l)) != "" {
			text += wrapped("  ", l, width)
		}
	}
	return text
}

// problem returns what a problem is about, its details, and the next command.
func problem(p *view.Problem, width int) string {
	head := p.APIServer
	if len(p.Nodes) > 0 {
		head += " on " + strings.Join(p.Nodes, ", ")
	}
	if p.KeyID != "" {
		head += ", key " + p.KeyID
	}
	if head != "" {
		head += ": "
	}
	text := wrapped("", head+p.Summary, width) + block(p.Detail, width)
	if p.Next != "" {
		text += line("  Next: ", p.Next)
	}
	return text
}

// condition returns a condition, and since when it has its status, with its message below.
func condition(apiServer string, c *metav1.Condition, now time.Time) string {
	head := apiServer + ": " + view.ConditionText(c)
	if at := c.LastTransitionTime; !at.IsZero() {
		ago := duration.HumanDuration(now.Sub(at.Time))
		head += fmt.Sprintf(" since %s, %s ago", at.UTC().Format(time.RFC3339), ago)
	}
	return line("", head) + block(c.Message, 0)
}

// history are the changes of conditions, of one node's API servers; each with the first line of its message.
func history(s *view.Status) (text string) {
	for i := 0; i < len(s.History) && s.Node != ""; i++ {
		c := &s.History[i]
		first, _, _ := strings.Cut(c.Message, "\n")
		text += line("", fmt.Sprintf("%s %s: %s (%s)", c.Time.UTC().Format(time.RFC3339), c.APIServer, first, c.Reason))
	}
	return text
}

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
