package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// sets are the conditions that a reason gives a status.
func sets(r *contract.Row) string {
	var all []string
	for _, s := range [][2]string{
		{contract.PluginsDegraded, r.Degraded}, {contract.HealthReporting, r.Reporting}, {contract.WriteKeyAgreed, r.Agreed},
	} {
		if s[1] != "" {
			all = append(all, s[0]+"="+s[1])
		}
	}
	return strings.Join(all, ", ")
}

// groups are condition types, and the sections of the runbooks: the most severe reason first.
var groups = append([]contract.RunbookGroup{{Title: "Condition types", Rows: contract.Conditions}},
	contract.RunbookGroups...)

// Explain returns the block of a name, without regard to case; empty if it has none.
func Explain(name string) string {
	if _, is := contract.NodeOf(name); is { // each node has a condition of its own
		name = contract.Conditions[0].Name
	}
	for _, g := range groups {
		for _, r := range g.Rows {
			is := func(other string) bool { return strings.EqualFold(other, name) }
			if is(r.Name) || slices.ContainsFunc(r.Alerts, is) {
				return explained(&r)
			}
		}
	}
	return ""
}

func explained(r *contract.Row) string {
	doNot := r.DoNot
	if r.Degraded == operatorstatus.True || contract.Reason(r.Name).Known() { // as for a problem of status
		doNot = cmp.Or(doNot, contract.UnhealthyDoNot)
	}
	text := r.Name + "\n"
	for _, f := range [][2]string{
		{"Means", r.Means}, {"True", r.True}, {"False", r.False}, {"Unknown", r.Unknown},
		{"Alert", strings.Join(r.Alerts, ", ")}, {"Sets", sets(r)},
		{"Check", r.Check}, {"Fix", r.Fix}, {"Do not", doNot},
	} {
		if f[1] != "" {
			text += wrapped(fmt.Sprintf("  %-9s ", f[0]), f[1], terminal)
		}
	}
	return text
}

// Names are those of all conditions, reasons and alerts.
func Names() (names []string) {
	for _, g := range groups {
		for _, r := range g.Rows {
			names = append(append(names, r.Name), r.Alerts...)
		}
	}
	return names
}

// Explanations are all names, each with what it means, by group.
func Explanations() (text string) {
	for _, g := range groups {
		text += g.Title + "\n"
		for _, r := range g.Rows {
			names := append([]string{r.Name}, r.Alerts...)
			text += "  " + strings.Join(names, ", ") + "\n" + wrapped("      ", r.Means, terminal)
		}
	}
	return text + "\nkubectl kms-health explain NAME shows what to check, and how to fix it.\n"
}

// terminal is the width of one. Lines of a preflight and of an explanation have at most as many characters, but for
// commands.
const terminal = 80

// wrapped is a label and external text, in lines of at most a width, if not 0, where words allow it. Lines after the
// first are indented to the text.
func wrapped(label, text string, width int) (lines string) {
	line := label
	for i, word := range strings.Fields(contract.Clean(text)) {
		if i > 0 && len(line)+len(word) >= width && width > 0 {
			lines += strings.TrimRight(line, " ") + "\n"
			line = strings.Repeat(" ", len(label))
		}
		line += word + " "
	}
	return lines + strings.TrimRight(line, " ") + "\n"
}
