package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Prose says all about a node, in sentences.
func Prose(e *view.Explanation, o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s, as of %s\n", orDash(e.Node), e.Time.UTC().Format(time.RFC3339))
	for i := range e.Plugins {
		p := &e.Plugins[i]
		state := StateWords(p.State)
		if o.Colour {
			state = colour(p.State) + state + plain
		}
		fmt.Fprintf(&b, "\n%s: %s\n", heading(p), state)
		for _, sentence := range sentences(p, e.Time.Time) {
			fmt.Fprintf(&b, "  %s\n", sentence)
		}
		b.WriteString(wrap("This means: "+p.Meaning, "  ", o.Width))
		for i, step := range p.Next {
			if i == 0 {
				fmt.Fprintf(&b, "  What to do:\n")
			}
			fmt.Fprintf(&b, "  - %s\n", clean(step.Text))
			if step.Command != "" {
				fmt.Fprintf(&b, "      %s\n", clean(step.Command))
			}
		}
	}
	target := ""
	for i, s := range e.Said {
		if i == 0 || s.Target != target {
			target = s.Target
			fmt.Fprintf(&b, "\nWhat the operator last wrote of it on %s:\n", orDash(target))
		}
		fmt.Fprintf(&b, "  %s=%s (%s): %s\n", clean(s.Type), clean(s.Status), clean(s.Reason), clean(s.Line))
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
	var said []string
	if d, known := p.Age(now); known {
		when := age(d) + " ago"
		if d <= -time.Second {
			when = age(-d) + " ahead"
		}
		every := "; how often is not said"
		if p.IntervalSeconds > 0 {
			every = fmt.Sprintf(", which is done every %s", time.Duration(p.IntervalSeconds)*time.Second)
		}
		said = append(said, fmt.Sprintf("Last checked %s (%s)%s.", p.LastChecked.UTC().Format(time.RFC3339), when, every))
		if p.State != rollup.State(p.Status) {
			said = append(said, fmt.Sprintf("It then said: %s.", p.Status))
		}
		remote := "The plugin named no valid remote key (KEK id)."
		if p.KEKID != "" {
			remote = "Remote key (KEK id): " + clean(p.KEKID)
		}
		said = append(said, remote)
	}
	if p.Reason != "" {
		said = append(said, "Reason: "+clean(string(p.Reason)))
	}
	if detail := strings.TrimSpace(clean(p.Detail)); detail != "" {
		said = append(said, "Detail: "+detail)
	}
	if writer := writer(&p.Plugin); writer != "" {
		said = append(said, writer)
	}
	return said
}

// writer says who made the report, and where it is.
func writer(p *view.Plugin) string {
	where := map[rollup.Form]string{
		rollup.FormCondition: "as a condition",
		rollup.FormTyped:     "in healthReports",
		view.FormOutput:      "by --output",
	}[p.Form]
	switch {
	case where == "":
		return ""
	case p.Form == view.FormOutput:
		return "Written by a reporter's --output."
	case p.Ours == nil:
		return "Reported " + where + "; by whom is not known: the object has no managedFields, as kubectl get leaves them out."
	case *p.Ours:
		return fmt.Sprintf("Reported %s, by this project's reporter (%s).", where, clean(p.Reporter))
	default:
		return fmt.Sprintf("Reported %s, by a reporter of another make, or not by it alone (%s).", where, clean(p.Reporter))
	}
}
