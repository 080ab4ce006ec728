package show

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Explanation is a block of the runbooks, or a condition, with fields for scripts.
type Explanation struct {
	Name    string   `json:"name"`
	Group   string   `json:"group"`
	Alerts  []string `json:"alerts,omitempty"`
	Sets    []string `json:"sets,omitempty"` // CONDITION=STATUS, of a reason
	Means   string   `json:"means"`
	True    string   `json:"true,omitempty"` // of a condition, as the next two
	False   string   `json:"false,omitempty"`
	Unknown string   `json:"unknown,omitempty"`
	Check   string   `json:"check,omitempty"`
	Fix     string   `json:"fix,omitempty"`
	DoNot   string   `json:"doNot,omitempty"`
}

// Explanations are all, in the order of the runbooks: the most severe reason first.
func Explanations() (all []Explanation) {
	for _, c := range contract.Conditions {
		all = append(all, Explanation{Name: c.Name, Group: "Condition types",
			Means: c.Means, True: c.True, False: c.False, Unknown: c.Unknown})
	}
	for _, g := range contract.RunbookGroups {
		for _, r := range g.Rows {
			all = append(all, Explanation{Name: r.Name, Group: g.Title, Alerts: r.Alerts, Sets: sets(&r),
				Means: r.Means, Check: r.Check, Fix: r.Fix, DoNot: r.DoNot})
		}
	}
	return all
}

// sets are the conditions that a reason gives a status.
func sets(r *contract.Row) (all []string) {
	for _, s := range []struct{ condition, status string }{
		{contract.PluginsDegraded, r.Degraded},
		{contract.HealthReporting, r.Reporting},
		{contract.WriteKeyAgreed, r.Agreed},
	} {
		if s.status != "" {
			all = append(all, s.condition+"="+s.status)
		}
	}
	return all
}

// Has reports whether it explains a name, without regard to case. Each node has a condition of its own.
func (x *Explanation) Has(name string) bool {
	name = strings.ToLower(name)
	if prefix := strings.ToLower(contract.ConditionTypePrefix); strings.HasPrefix(name, prefix) {
		return strings.HasPrefix(x.Name, contract.ConditionTypePrefix)
	}
	return slices.ContainsFunc(append([]string{x.Name}, x.Alerts...), func(n string) bool {
		return strings.ToLower(n) == name
	})
}

// Text is the explanation for people.
func (x *Explanation) Text() string {
	text := x.Name + "\n"
	for _, f := range []struct{ label, text string }{
		{"Alert", strings.Join(x.Alerts, ", ")},
		{"Sets", strings.Join(x.Sets, ", ")},
		{"Means", x.Means},
		{"True", x.True},
		{"False", x.False},
		{"Unknown", x.Unknown},
		{"Check", x.Check},
		{"Fix", x.Fix},
		{"Do not", x.DoNot},
		{"See also", strings.Join(x.seeAlso(), ", ")},
	} {
		if f.text != "" {
			text += wrapped(fmt.Sprintf("  %-9s ", f.label), f.text, Width)
		}
	}
	return text
}

var quoted = regexp.MustCompile("`(\\w+)`")

// seeAlso are the other names that its texts refer to.
func (x *Explanation) seeAlso() (names []string) {
	for _, match := range quoted.FindAllStringSubmatch(x.Means+x.Check+x.Fix+x.DoNot, -1) {
		if _, known := contract.RunbookOf(match[1]); known && !x.Has(match[1]) && !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// List is each name, with what it means, by group.
func List(all []Explanation) (text string) {
	group := ""
	for _, x := range all {
		if x.Group != group {
			group = x.Group
			text += group + "\n"
		}
		text += "  " + strings.Join(append([]string{x.Name}, x.Alerts...), ", ") + "\n" + wrapped("      ", x.Means, Width)
	}
	return text + "\nkubectl kms-health explain NAME shows what to check, and how to fix it.\n"
}

// Width is that of a terminal, unless it is known.
const Width = 80

// wrapped is a label and its text, in lines of at most a width, if not 0, where words allow it. Lines after the
// first are indented to the text.
func wrapped(label, text string, width int) (lines string) {
	line := label
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+len(word) >= width && width > 0 {
			lines += strings.TrimRight(line, " ") + "\n"
			line = strings.Repeat(" ", len(label))
		}
		line += word + " "
	}
	return lines + strings.TrimRight(line, " ") + "\n"
}
