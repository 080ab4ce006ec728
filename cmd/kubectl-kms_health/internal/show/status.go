// Package show formats a view.Status: as text for people, or encoded. It contains no decisions, and
// does not write.
package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Options of the output.
type Options struct {
	// Wide shows everything in full, a line for each row.
	Wide bool
	// Width is that of the terminal, in columns.
	Width int
}

const (
	indent = "  "
	// maxProblems is how many problems are shown, unless everything is.
	maxProblems = 10
)

// Status is the output for people: the verdict; the problems, each with the next command; the
// table; and the conditions that are not as expected. Of one node it has everything.
func Status(s *view.Status, o Options) string {
	full := o.Wide || s.Node != ""
	parts, fixes := []string{wrap(s.Summary, "", o.Width)}, map[string]bool{"": true}
	for i := range s.Problems {
		if i == maxProblems && !full {
			more := len(s.Problems) - maxProblems
			parts = append(parts, fmt.Sprintf("and %d more problems; -o wide shows all\n", more))
			break
		}
		p := &s.Problems[i]
		text := problem(p, o)
		if !fixes[p.Fix] { // several may have one cause
			text, fixes[p.Fix] = text+wrap("Fix: "+p.Fix, indent, o.Width), true
		}
		parts = append(parts, text)
	}
	reports, conditions := "", ""
	for _, a := range s.APIServers {
		for _, r := range a.Reports {
			if s.Node != "" {
				reports += report(a.Name, &r, o)
			}
		}
		for _, c := range a.Conditions {
			if !full && s.Shown(a.Name, c.Reason) {
				c.Message = "" // it repeats the problems
			}
			if s.Node != "" || !view.AsExpected(&c) {
				conditions += condition(a.Name, &c, s.Time.Time, o)
			}
			if c.Type == contract.WriteKeyAgreed && c.Status == metav1.ConditionFalse { // no problem of health
				runbook, _ := contract.RunbookOf(c.Reason)
				conditions += wrap("If it stays: "+runbook.Fix, indent, o.Width)
			}
		}
	}
	if conditions != "" && !s.Operator.ConditionsHold() {
		conditions = "As last written by the operator, which does not run:\n" + conditions
	}
	for _, part := range []string{table(s, o), reports, conditions} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

// problem is what it is about, the plugin's own words, and the next command.
func problem(p *view.Problem, o Options) string {
	head := p.APIServer
	if p.Node != "" {
		head += " on " + p.Node
	}
	if p.KeyID != "" {
		head += ", key " + p.KeyID
	}
	if head != "" {
		head += ": "
	}
	text := wrap(head+p.Summary, "", o.Width) + block(p.Detail, o)
	if p.Next == nil {
		return text
	}
	where, command := "", clean(p.Next.Command)
	if p.Next.Node != "" {
		where = ", on the node " + clean(p.Next.Node)
	}
	next := indent + "Next" + where + ": "
	if utf8.RuneCountInString(next+command) > o.Width { // a command is not wrapped
		next = strings.TrimRight(next, " ") + "\n" + indent + indent
	}
	return text + next + command + "\n"
}

// block is text of several lines, indented, without empty lines.
func block(lines string, o Options) (text string) {
	for line := range strings.Lines(lines) {
		if strings.TrimSpace(clean(line)) != "" {
			text += wrap(line, indent, o.Width)
		}
	}
	return text
}

// condition is since when it is so, with its message, whose further lines are below.
func condition(apiServer string, c *metav1.Condition, now time.Time, o Options) string {
	head := apiServer + ": " + view.ConditionText(c)
	if at := c.LastTransitionTime; !at.IsZero() {
		head += fmt.Sprintf(" since %s, %s ago", at.UTC().Format(time.RFC3339), age(now.Sub(at.Time)))
	}
	message := strings.TrimSpace(c.Message)
	if message != "" && !strings.Contains(message, "\n") {
		return wrap(head+": "+message, "", o.Width)
	}
	return wrap(head, "", o.Width) + block(message, o)
}

func report(apiServer string, r *view.Report, o Options) string {
	written := "at an unknown time"
	if r.Written != nil {
		written = "at " + r.Written.UTC().Format(time.RFC3339)
	}
	writer := cmp.Or(strings.TrimSpace(r.Writer), "an unknown writer")
	return wrap(fmt.Sprintf("%s: report (%s) written by %s, %s", apiServer, r.Form, writer, written), "", o.Width)
}
