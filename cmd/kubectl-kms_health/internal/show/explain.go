package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// groups are condition types, and the sections of the runbooks: the most severe reason first.
var groups = append([]contract.RunbookGroup{{Title: "Condition types", Rows: contract.Conditions}},
	contract.RunbookGroups...)

// All is the name of all blocks.
const All = "*"

// Explain returns the block of a name, without regard to case; empty if there is none.
func Explain(name string) (text string) {
	if _, is := contract.NodeOf(name); is { // each node has a condition of its own
		name = contract.Conditions[0].Name
	}
	for _, g := range groups {
		for _, r := range g.Rows {
			is := func(other string) bool { return strings.EqualFold(other, name) }
			if is(r.Name) || slices.ContainsFunc(r.Alerts, is) {
				return explained(&r)
			}
			if name == All {
				text += explained(&r)
			}
		}
	}
	return text
}

func explained(r *contract.Row) string {
	doNot := r.DoNot
	if r.Degraded == operatorstatus.True || contract.Reason(r.Name).Known() { // as for a problem of status
		doNot = cmp.Or(doNot, contract.UnhealthyDoNot)
	}
	text := r.Name + "\n"
	for _, f := range [][2]string{
		{"Means", r.Means}, {"True", r.True}, {"False", r.False}, {"Unknown", r.Unknown},
		{"Alert", strings.Join(r.Alerts, ", ")}, {"Sets " + contract.PluginsDegraded + ":", r.Degraded},
		{"Sets " + contract.HealthReporting + ":", r.Reporting}, {"Sets " + contract.WriteKeyAgreed + ":", r.Agreed},
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
