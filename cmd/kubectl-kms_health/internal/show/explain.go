package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Prose explains the state of a node in sentences.
func Prose(e *view.Explanation, o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s, as of %s\n", orDash(e.Node), e.Time.UTC().Format(time.RFC3339))
	for i := range e.Plugins {
		p := &e.Plugins[i]
		state := view.StateWords(p.State)
		if o.Colour {
			state = colour(p.State) + state + plain
		}
		fmt.Fprintf(&b, "\n%s: %s\n", heading(p), state)
		for _, sentence := range sentences(p, e.Time.Time) {
			b.WriteString(wrap(sentence, "  ", indent, o.Width))
		}
		b.WriteString(wrap("This means: "+p.Meaning, "  ", "  ", o.Width))
		for i, step := range p.Next {
			if i == 0 {
				fmt.Fprintf(&b, "  What to do:\n")
			}
			b.WriteString(wrap(clean(step.Text), "  - ", indent, o.Width))
			if step.Command != "" {
				fmt.Fprintf(&b, "      %s\n", clean(step.Command))
			}
		}
	}
	target := ""
	for i, c := range e.Conditions {
		if i == 0 || c.Target != target {
			target = c.Target
			fmt.Fprintf(&b, "\n%s, as the operator last wrote:\n", orDash(target))
		}
		b.WriteString(condition(&c.Condition, o.Width))
	}
	return b.String()
}

func heading(p *view.ExplainedPlugin) string {
	words := orDash(p.Target)
	if p.KeyID != "" {
		words += ", key " + clean(p.KeyID)
	}
	if p.Write {
		words += " (write)"
	}
	return words
}

func sentences(p *view.ExplainedPlugin, now time.Time) []string {
	var parts []string
	if d, known := p.Age(now); known {
		when := age(d) + " ago"
		if d <= -time.Second {
			when = age(-d) + " ahead"
		}
		every := "; the interval is not known"
		if p.IntervalSeconds > 0 {
			every = fmt.Sprintf(", every %s", time.Duration(p.IntervalSeconds)*time.Second)
		}
		parts = append(parts, fmt.Sprintf("Last checked %s (%s)%s.", p.LastChecked.UTC().Format(time.RFC3339), when, every))
		if p.State != rollup.State(p.Status) {
			parts = append(parts, fmt.Sprintf("Last reported: %s.", p.Status))
		}
		remote := "The plugin reported no valid KEK ID."
		if p.KEKID != "" {
			remote = "KEK ID: " + clean(p.KEKID)
		}
		parts = append(parts, remote)
	}
	if p.Reason != "" {
		parts = append(parts, "Reason: "+clean(string(p.Reason)))
	}
	if detail := strings.TrimSpace(clean(p.Detail)); detail != "" {
		parts = append(parts, "Detail: "+detail)
	}
	if writer := writer(&p.Plugin); writer != "" {
		parts = append(parts, writer)
	}
	return parts
}

// writer is the text on the writer and the form of the report.
func writer(p *view.Plugin) string {
	where := map[operatorcr.Form]string{
		operatorcr.FormCondition: "as a condition",
		operatorcr.FormTyped:     "in healthReports",
		view.FormOutput:          "by --output",
	}[p.Form]
	switch {
	case where == "":
		return ""
	case p.Form == view.FormOutput:
		return "Written by a reporter's --output."
	case p.Ours == nil:
		return "Reported " + where + "; the writer is not known: the object has no managedFields, as kubectl get leaves them out."
	case *p.Ours:
		return fmt.Sprintf("Reported %s, by this project's reporter (%s).", where, clean(p.Reporter))
	default:
		return fmt.Sprintf("Reported %s, by a third-party reporter, or not by one reporter alone (%s).", where, clean(p.Reporter))
	}
}
