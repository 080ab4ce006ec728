package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// The conditions of a ClusterOperator (config.openshift.io/v1).
const (
	Available   = "Available"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Upgradeable = "Upgradeable"
)

const asExpected = contract.AsExpected

// Input is the input of Evaluate.
type Input struct {
	Now           time.Time
	Inertia       time.Duration // how long something must be bad before it counts
	Configuration string        // why the configuration file is rejected, empty where it is active
	Configured    bool          // some version is active
	CA            string        // why the operator's CA is not current, or that it ends soon; empty: neither
	Targets       []Target
	Previous      map[string]operatorcr.Condition // the current conditions, by type
	Since         map[string]time.Time            // when each problem was first observed
}

// Target is the state of one target.
type Target struct {
	Name     string
	Delivery apiserver.Status // zero: not known yet; it counts where Reporting is not known
	Verdict
}

type bad struct {
	id      string // the same for as long as it is the same problem
	status  string // of Degraded if there were nothing else
	reason  string
	message string
	since   time.Time // zero: since it was first observed
}

// Evaluate returns the four conditions, and when they may change without a change of the
// input; zero: never. It updates Since.
func Evaluate(in *Input) (conditions []operatorcr.Condition, again time.Time) {
	problems, since := in.problems(), map[string]time.Time{}
	for i := range problems {
		b := &problems[i]
		if b.since.IsZero() {
			b.since = in.Now
			if first, seen := in.Since[b.id]; seen {
				b.since = first
			}
			since[b.id] = b.since
		}
	}
	clear(in.Since)
	maps.Copy(in.Since, since)
	degraded, again := in.degraded(problems)
	conditions = []operatorcr.Condition{in.available(), in.progressing(), degraded, in.upgradeable(degraded)}
	for i := range conditions {
		conditions[i].Settle(in.Previous, in.Now)
	}
	return conditions, again
}

func (in *Input) problems() []bad {
	var all []bad
	add := func(id, status, reason, message string, since time.Time) {
		all = append(all, bad{id, status, reason, message, since})
	}
	if in.Configuration != "" {
		add("configuration", operatorcr.True, contract.ConfigurationInvalid, in.Configuration, time.Time{})
	}
	for _, t := range in.Targets {
		if reason, message := t.reporting(); contract.RollupReasonOf(reason).NeedsAction {
			add(t.Name+"/delivery", operatorcr.True, "Delivery_"+reason, prefixed(t.Name, message), time.Time{})
		}
		if c := t.Degraded; c.Type != "" && c.Status != operatorcr.False {
			add(t.Name+"/"+c.Type, c.Status, "KMSPlugins_"+c.Reason, prefixed(t.Name, c.Message), c.LastTransitionTime)
		}
	}
	if in.CA != "" {
		add("ca", operatorcr.True, contract.CANotCurrent, in.CA, time.Time{})
	}
	return all
}

// reporting is the reason and message of KMSHealthReporting, which bounds for how long something
// may be under way.
func (t *Target) reporting() (reason, message string) {
	if t.Reporting.Reason != "" {
		return t.Reporting.Reason, t.Reporting.Message
	}
	return string(cmp.Or(t.Delivery.Reason, contract.Off)), t.Delivery.Message
}

func prefixed(name, message string) string {
	return name + ": " + strings.ReplaceAll(message, "\n", "\n"+name+": ")
}

// degraded aggregates problems as a StatusSyncer aggregates conditions: none counts until
// one has lasted for the inertia, then all do. A problem that was already reported
// continues to count.
func (in *Input) degraded(problems []bad) (c operatorcr.Condition, again time.Time) {
	c = operatorcr.Condition{Type: Degraded, Status: operatorcr.False, Reason: asExpected}
	old := in.Previous[Degraded].Status == operatorcr.True || in.Previous[Degraded].Status == operatorcr.Unknown
	for _, b := range problems {
		// Later than the inertia, as in library-go (pkg/operator/status).
		due := b.since.Add(in.Inertia + 1)
		if !in.Now.Before(due) {
			old = true
		} else if again.IsZero() || due.Before(again) {
			again = due
		}
	}
	if !old || len(problems) == 0 {
		return c, again
	}
	c.Status = operatorcr.Unknown
	var reasons, messages []string
	for _, b := range problems {
		if b.status == operatorcr.True {
			c.Status = operatorcr.True
		}
		reasons, messages = append(reasons, b.reason), append(messages, b.message)
	}
	slices.Sort(reasons)
	c.Reason, c.Message = strings.Join(slices.Compact(reasons), "::"), strings.Join(messages, "\n")
	return c, time.Time{}
}

func (in *Input) available() operatorcr.Condition {
	c := operatorcr.Condition{Type: Available, Status: operatorcr.True, Reason: asExpected}
	if !in.Configured {
		c.Status, c.Reason, c.Message = operatorcr.False, contract.NoConfiguration, "no configuration is active"
		if in.Configuration != "" {
			c.Message += ": " + in.Configuration
		}
		return c
	}
	var lines []string
	for _, t := range in.Targets {
		if t.Delivery.Message != "" {
			lines = append(lines, t.Name+": "+t.Delivery.Message)
		}
	}
	c.Message = strings.Join(lines, "\n")
	if len(in.Targets) == 0 {
		c.Message = "no target is configured"
	}
	return c
}

func (in *Input) progressing() operatorcr.Condition {
	c := operatorcr.Condition{Type: Progressing, Status: operatorcr.False, Reason: asExpected}
	var lines []string
	for _, t := range in.Targets {
		if reason, message := t.reporting(); contract.RollupReasonOf(reason).UnderWay && message != "" {
			c.Status, c.Reason = operatorcr.True, reason
			lines = append(lines, prefixed(t.Name, message))
		}
	}
	c.Message = strings.Join(lines, "\n")
	return c
}

// upgradeable is False while an upgrade, which restarts every API server, could leave one
// of them unable to read its Secrets.
func (in *Input) upgradeable(degraded operatorcr.Condition) operatorcr.Condition {
	c := operatorcr.Condition{Type: Upgradeable, Status: operatorcr.True, Reason: asExpected}
	var unhealthy []string
	for _, t := range in.Targets {
		c := t.Degraded
		if degraded.Status == operatorcr.True && c.Status == operatorcr.True &&
			!contract.RollupReasonOf(c.Reason).Upgradeable {
			unhealthy = append(unhealthy, t.Name)
		}
	}
	if len(unhealthy) > 0 {
		c.Status, c.Reason = operatorcr.False, contract.PluginUnhealthy
		c.Message = fmt.Sprintf("an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is "+
			"unhealthy: %s", strings.Join(unhealthy, ", "))
	}
	return c
}
