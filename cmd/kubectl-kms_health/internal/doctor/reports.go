package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// reports checks what each node reports, by the reports alone.
func (e *evaluation) reports() (all []Finding) {
	if !e.expected() {
		if e.managementState() == v1alpha1.Removed { // see delivery
			return nil
		}
		return []Finding{e.nothingReported()}
	}
	for i := range e.targets {
		t := &e.targets[i]
		if !t.status.Expected() {
			continue
		}
		found := t.unhealthy()
		if len(found) == 0 {
			found = t.rolledUp()
		}
		if len(found) == 0 {
			found = []Finding{t.healthy()}
		}
		all = append(all, found...)
	}
	return all
}

// nothingReported is what is known if no target that was read has a report.
func (e *evaluation) nothingReported() Finding {
	f := Finding{Check: Reports, Status: Unknown, Reason: "NothingReported", Found: "no API server has a report: KMS is off, or there are no reporters"}
	var unread []string
	for _, u := range e.Unread {
		if u.Namespace == "" && slices.Contains(append(contract.ResourceNames(), contract.KMSHealths.Plural), u.Resource) {
			unread = append(unread, u.Resource)
		}
	}
	if len(unread) > 0 {
		f.Found = "whether there are reports is not known: could not read " + strings.Join(unread, ", ")
	}
	return f
}

// stateStatus is the status of plugins in a state; of another state, from a later version,
// it is Unknown.
func stateStatus(s rollup.State) Status {
	switch s {
	case rollup.Healthy, rollup.Skewed: // skewed: see clocks
		return OK
	case rollup.Unhealthy, rollup.Error, rollup.Stale, rollup.Unreadable:
		return Error
	case rollup.Missing:
		return Warning
	default:
		return Unknown
	}
}

// unhealthy are the plugins that are not healthy: those of several nodes with the same cause
// are one finding.
func (t *target) unhealthy() (all []Finding) {
	type cause struct{ key, state, reason, detail string }
	index := map[cause]int{}
	for i := range t.status.Plugins {
		p := &t.status.Plugins[i]
		status := stateStatus(p.State)
		if status == OK {
			continue
		}
		k := cause{p.KeyID, string(p.State), string(p.Reason), p.Detail}
		at, known := index[k]
		if !known {
			at = len(all)
			index[k] = at
			reason := k.reason
			if reason == "" || !p.State.Unhealthy() {
				reason = strings.ToUpper(k.state[:min(1, len(k.state))]) + k.state[min(1, len(k.state)):]
			}
			all = append(all, t.finding(Reports, status, reason, "", view.Next(p)...))
		}
		all[at].Nodes = append(all[at].Nodes, p.Node)
	}
	for k, at := range index {
		f := &all[at]
		where := nodes(f.Nodes)
		if k.key != "" {
			where = "key " + k.key + " on " + where
		}
		f.Found = strings.Join(slices.DeleteFunc([]string{where, view.StateWords(rollup.State(k.state)), k.reason, k.detail}, func(s string) bool { return s == "" }), ": ")
	}
	return all
}

// rolledUp is what only the operator knows, such as a container that cannot start.
func (t *target) rolledUp() (all []Finding) {
	for _, bad := range []struct {
		conditionType, value string
		status               Status
	}{
		{contract.PluginsDegraded, operatorcr.True, Error}, {contract.PluginsDegraded, operatorcr.Unknown, Warning},
	} {
		if c, is := t.resource.Conditions[bad.conditionType]; is && c.Status == bad.value {
			return []Finding{t.finding(Reports, bad.status, c.Reason, full(c), operatorLog(t.namespace))}
		}
	}
	return nil
}

// healthy is the finding if no plugin is known to be unhealthy.
func (t *target) healthy() Finding {
	n, skewed := 0, false
	var names []string
	for _, p := range t.status.Plugins {
		if p.State == rollup.Healthy {
			n++
			names = append(names, p.Node)
		}
		skewed = skewed || p.State == rollup.Skewed
	}
	switch {
	case n > 0:
		return t.finding(Reports, OK, "", fmt.Sprintf("%s on %s, all healthy by fresh reports", plural(n, "plugin", "plugins"), plural(len(slices.Compact(names)), "node", "nodes")))
	case skewed:
		return t.finding(Reports, Unknown, "ClockSkew", "the age of every report is not known, see Clocks")
	default:
		return t.finding(Reports, OK, "", "no plugin is reported, as the operator expects")
	}
}

// ahead is how far a report may be from the future: the API server's clock is known to 5
// seconds (pkg/serverclock), and reports have whole seconds.
const ahead = 6 * time.Second

// clocks compares the clocks of the nodes, and of this machine, with the API server's.
func (e *evaluation) clocks() (all []Finding) {
	if !e.expected() {
		return nil
	}
	fresh := false
	check := view.Step{Text: "Check the node's clock, on the node:", Command: "chronyc tracking"}
	for i := range e.targets {
		t := &e.targets[i]
		var differ, early []string
		for _, p := range t.status.Plugins {
			age, known := p.Age(e.Now)
			fresh = fresh || p.State == rollup.Healthy || p.State.Unhealthy()
			switch {
			case p.State == rollup.Skewed:
				differ = append(differ, p.Node)
			case known && age < -ahead:
				early = append(early, p.Node)
			}
		}
		if differ = slices.Compact(differ); len(differ) > 0 {
			f := t.finding(Clocks, Error, "ClockSkew", nodes(differ)+": the clock differs from the API server's, so the age of the reports is not known", check)
			f.Nodes = differ
			all = append(all, f)
		}
		if early = slices.Compact(early); len(early) > 0 {
			f := t.finding(Clocks, Warning, "ReportFromFuture", nodes(early)+": the newest report is from the future", check)
			f.Nodes = early
			all = append(all, f)
		}
	}
	if e.Offset != 0 {
		all = append(all, e.localClock())
	}
	switch {
	case len(all) > 0:
		return all
	case !fresh:
		return []Finding{{Check: Clocks, Status: Unknown, Reason: "NoFreshReport", Found: "no report is fresh, so the clocks of the nodes are not known"}}
	default:
		return []Finding{{Check: Clocks, Status: OK, Found: "no clock differs"}}
	}
}

func (e *evaluation) localClock() Finding {
	direction := "behind"
	if e.Offset < 0 {
		direction = "ahead of"
	}
	return Finding{Check: Clocks, Status: Warning, Reason: "LocalClock", Found: fmt.Sprintf("this machine's clock is %s %s the API server's; ages are by the API server's clock", duration.HumanDuration(e.Offset.Abs()), direction),
		Next: []view.Step{{Text: "Check this machine's clock."}}}
}

// keys checks the agreement on the write key, and reports the other keys.
func (e *evaluation) keys() (all []Finding) {
	for i := range e.targets {
		t := &e.targets[i]
		if !t.status.Expected() {
			continue
		}
		found := t.rotation()
		if c, is := t.resource.Conditions[contract.WriteKeyAgreed]; is && c.Status != operatorcr.True && c.Reason != contract.NoPlugins && c.Reason != contract.NoWriteKey {
			status := Warning
			if c.Status == operatorcr.Unknown {
				status = Unknown
			}
			found = append(found, t.finding(Keys, status, c.Reason, full(c), view.Step{Text: "During a migration, wait. Do not remove the earlier key."}))
		} else if w := t.status.WriteKey; !is && len(w.Nodes) > 0 && !w.Agreed {
			found = append(found, t.finding(Keys, Warning, "NotAgreed", "by the reports, the nodes do not agree on a write key", view.Step{Text: "See which node reports what:", Command: "kubectl kms-health status --target " + t.status.Target}))
		}
		if len(found) == 0 {
			found = []Finding{t.finding(Keys, OK, "", "")}
		}
		if text := t.olderKeys(); found[0].Status == OK {
			found[0].Found = text
		}
		all = append(all, found...)
	}
	return all
}

// rotation are the conditions of OpenShift's own controllers of key rotation.
func (t *target) rotation() (all []Finding) {
	for _, c := range t.status.Rotation {
		if c.Status != operatorcr.True {
			continue
		}
		status := Warning
		if strings.HasSuffix(c.Type, "Degraded") {
			status = Error
		}
		all = append(all, t.finding(Keys, status, c.Reason, full(operatorcr.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}),
			view.Step{Text: "See which node reports another KEK ID:", Command: "kubectl kms-health status -o wide --target " + t.status.Target}))
	}
	return all
}

// olderKeys returns which keys are in use: a key that plugins are reported for besides the write
// key is still needed to read.
func (t *target) olderKeys() string {
	var write, other []string
	for _, p := range t.status.Plugins {
		switch {
		case p.Write:
			write = append(write, p.KeyID)
		case p.KeyID != "" && p.LastChecked != nil:
			other = append(other, p.KeyID)
		}
	}
	unique := func(ids []string) []string { slices.Sort(ids); return slices.Compact(ids) }
	write, other = unique(write), unique(other)
	other = slices.DeleteFunc(other, func(id string) bool { return slices.Contains(write, id) })
	if len(write) == 0 {
		return "no key is reported"
	}
	text := "the nodes write with " + keyNames(write)
	if len(other) > 0 {
		text += "; still configured for reading: " + keyNames(other) + ". Keep the remote keys"
	}
	return text
}
