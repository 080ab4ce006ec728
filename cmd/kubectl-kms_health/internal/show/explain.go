package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// explanation is a block of the runbooks, or a condition.
type explanation struct {
	group  string
	names  []string // the first is its own, others are its alerts'
	fields [][2]string
}

// explanations are all, in the order of the runbooks: the most severe reason first.
func explanations() (all []explanation) {
	for _, c := range contract.Conditions {
		all = append(all, explanation{"Condition types", []string{c.Name}, [][2]string{
			{"Means", c.Means}, {"True", c.True}, {"False", c.False}, {"Unknown", c.Unknown},
		}})
	}
	for _, g := range contract.RunbookGroups {
		for _, r := range g.Rows {
			if r.Degraded == operatorstatus.True || contract.Reason(r.Name).Known() { // as for a problem of status
				r.DoNot = cmp.Or(r.DoNot, contract.UnhealthyDoNot)
			}
			all = append(all, explanation{g.Title, append([]string{r.Name}, r.Alerts...), [][2]string{
				{"Means", r.Means}, {"Alert", strings.Join(r.Alerts, ", ")}, {"Sets", sets(&r)},
				{"Check", r.Check}, {"Fix", r.Fix}, {"Do not", r.DoNot},
			}})
		}
	}
	return all
}

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

// Explain returns the explanation of a name, without regard to case; false if it has none.
func Explain(name string) (text string, found bool) {
	if _, is := contract.NodeOf(name); is { // each node has a condition of its own
		name = contract.Conditions[0].Name
	}
	all := explanations()
	at := slices.IndexFunc(all, func(x explanation) bool {
		return slices.ContainsFunc(x.names, func(n string) bool { return strings.EqualFold(n, name) })
	})
	if at < 0 {
		return "", false
	}
	text = all[at].names[0] + "\n"
	for _, f := range all[at].fields {
		if f[1] != "" {
			text += wrapped(fmt.Sprintf("  %-9s ", f[0]), f[1], terminal)
		}
	}
	return text, true
}

// Names are those of all conditions, reasons and alerts.
func Names() (names []string) {
	for _, x := range explanations() {
		names = append(names, x.names...)
	}
	return names
}

// Explanations are all names, each with what it means, by group.
func Explanations() (text string) {
	group := ""
	for _, x := range explanations() {
		if x.group != group {
			group = x.group
			text += group + "\n"
		}
		text += "  " + strings.Join(x.names, ", ") + "\n" + wrapped("      ", x.fields[0][1], terminal)
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
