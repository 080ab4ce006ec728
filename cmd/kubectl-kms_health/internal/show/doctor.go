package show

import (
	"fmt"
	"strings"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
)

// minFound is the shortest width of what was found beside the columns.
const minFound = 40

// Diagnosis is the list of findings, and how many there are of each status.
func Diagnosis(d *doctor.Diagnosis, o Options) string {
	var b strings.Builder
	const status, check = 9, 15 // columns, with their gaps
	blank := strings.Repeat(" ", status+check)
	beside := o.Width >= len(blank)+minFound
	if !o.NoHeaders {
		b.WriteString(strings.TrimRight(pad("STATUS", status)+pad("CHECK", check)+"FOUND", " ") + "\n")
	}
	counts := map[doctor.Status]int{}
	for i := range d.Findings {
		f := &d.Findings[i]
		counts[f.Status]++
		head := pad(clean(string(f.Status)), status-1) + " " + pad(clean(string(f.Check)), check-1) + " "
		found := clean(f.Found)
		if f.Target != "" {
			found = clean(f.Target) + ": " + found
		}
		text := wrap(found, head, blank, o.Width)
		if !beside {
			text = strings.TrimRight(head, " ") + "\n" + wrap(found, indent, indent, o.Width)
		}
		if o.Colour {
			text = statusColour(f.Status) + string(f.Status) + plain + text[len(f.Status):]
		}
		b.WriteString(text)
		for _, step := range f.Next {
			b.WriteString(wrap(clean(step.Text), indent+"- ", indent+"  ", o.Width))
			if step.Command != "" {
				b.WriteString(indent + "    " + clean(step.Command) + "\n")
			}
		}
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Error, doctor.Warning, doctor.Unknown, doctor.OK} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	return b.String() + "\n" + strings.Join(parts, ", ") + "\n"
}

func statusColour(s doctor.Status) string {
	switch s {
	case doctor.Error:
		return red
	case doctor.OK:
		return green
	default:
		return yellow
	}
}
