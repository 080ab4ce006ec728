package clusteroperatorcontroller

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// The conditions of a ClusterOperator (config.openshift.io/v1).
const (
	Available   = "Available"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Upgradeable = "Upgradeable"
)

// Input is the input of Evaluate.
type Input struct {
	Now           time.Time     // by the process's own clock
	Wall          time.Time     // by the API server's, for lastTransitionTime
	Inertia       time.Duration // how long a problem must last before it counts
	Configuration string        // why the configuration file is rejected, empty where it is active
	Configured    bool          // a configuration is active: the file, or its last valid version
	Targets       []Target
	Previous      map[string]operatorstatus.Condition // the current conditions, by type
	Since         map[string]time.Time                // when each problem was first observed, as Evaluate returned it
}

// Target is the state of one target. The Status of its delivery counts while Reporting is not known.
type Target struct {
	delivery.Target
	delivery.Verdict
}

// Evaluate returns the four conditions, when they may change without a change of the input (zero: never), and the next
// Since.
func Evaluate(in *Input) (conditions map[string]operatorstatus.Condition, again time.Time, since map[string]time.Time) {
	available, progressing := in.available(), normally(Progressing, operatorstatus.False)
	var problems []operatorstatus.Condition // Status is what Degraded would be with this problem alone
	since = map[string]time.Time{}
	// The id identifies a problem across calls. It starts when it is first observed: a condition's own time may be by
	// another API server's clock.
	add := func(id, status, reason, message string) {
		began := cmp.Or(in.Since[id], in.Now)
		since[id] = began
		problems = append(problems, operatorstatus.Condition{Status: status, Reason: reason, Message: message,
			LastTransitionTime: began})
	}
	if in.Configuration != "" {
		add("configuration", operatorstatus.True, contract.ConfigurationInvalid, in.Configuration)
	}
	var unhealthy []string
	for i := range in.Targets {
		t := &in.Targets[i]
		reason, message := t.reporting()
		row := contract.RollupReasonOf(reason)
		if in.Configured && t.Status.Message != "" {
			available.Message = line(available.Message, t.Name+": "+t.Status.Message)
		}
		if row.UnderWay && message != "" {
			progressing.Status, progressing.Reason = operatorstatus.True, reason
			progressing.Message = line(progressing.Message, t.prefixed(message))
		}
		if row.NeedsAction {
			add(t.Name+"/delivery", operatorstatus.True, "Delivery_"+reason, t.prefixed(message))
		}
		if c := t.Degraded; c.Type != "" && c.Status != operatorstatus.False {
			add(t.Name+"/"+c.Type+"/"+c.Status, c.Status, "KMSPlugins_"+c.Reason, t.prefixed(c.Message))
			if c.Status == operatorstatus.True {
				unhealthy = append(unhealthy, t.Name)
			}
		}
	}
	degraded, again := in.degraded(problems)
	conditions = map[string]operatorstatus.Condition{}
	for _, c := range []operatorstatus.Condition{available, progressing, degraded, upgradeable(degraded, unhealthy)} {
		c.Settle(in.Previous, in.Wall)
		conditions[c.Type] = c
	}
	return conditions, again, since
}

func normally(kind, status string) operatorstatus.Condition {
	return operatorstatus.Condition{Type: kind, Status: status, Reason: contract.AsExpected}
}

func (in *Input) available() operatorstatus.Condition {
	c := normally(Available, operatorstatus.True)
	switch {
	case !in.Configured:
		c.Status, c.Reason = operatorstatus.False, contract.NoConfiguration
		c.Message = strings.TrimSuffix("no configuration is active: "+in.Configuration, ": ")
	case len(in.Targets) == 0:
		c.Message = "no API server is configured"
	}
	return c
}

func line(text, more string) string { return strings.TrimPrefix(text+"\n"+more, "\n") }

// reporting returns the reason and message of KMSHealthReporting, which bounds how long something may be under way.
func (t *Target) reporting() (reason, message string) {
	if t.Reporting.Reason != "" {
		return t.Reporting.Reason, t.Reporting.Message
	}
	return string(cmp.Or(t.Status.Reason, contract.Off)), t.Status.Message
}

func (t *Target) prefixed(message string) string {
	return t.Name + ": " + strings.ReplaceAll(message, "\n", "\n"+t.Name+": ")
}

// degraded aggregates problems as a StatusSyncer aggregates conditions: no problem counts until one has lasted for
// the inertia, then all do. If Degraded was already True or Unknown, all count at once.
func (in *Input) degraded(problems []operatorstatus.Condition) (c operatorstatus.Condition, again time.Time) {
	c = normally(Degraded, operatorstatus.False)
	was := in.Previous[Degraded].Status
	old := was == operatorstatus.True || was == operatorstatus.Unknown
	for _, p := range problems {
		due := p.LastTransitionTime.Add(in.Inertia + 1) // later than the inertia, as in library-go (pkg/operator/status)
		if !in.Now.Before(due) {
			old = true
		} else if again.IsZero() || due.Before(again) {
			again = due
		}
	}
	if !old || len(problems) == 0 {
		return c, again
	}
	c.Status = operatorstatus.Unknown
	var reasons []string
	for _, p := range problems {
		if p.Status == operatorstatus.True {
			c.Status = operatorstatus.True
		}
		reasons = append(reasons, p.Reason)
		c.Message = line(c.Message, p.Message)
	}
	slices.Sort(reasons)
	c.Reason = strings.Join(slices.Compact(reasons), "::")
	return c, time.Time{}
}

// upgradeable is False while an upgrade, which restarts every API server, could leave one of them unable to read its
// Secrets.
func upgradeable(degraded operatorstatus.Condition, unhealthy []string) operatorstatus.Condition {
	c := normally(Upgradeable, operatorstatus.True)
	if degraded.Status == operatorstatus.True && len(unhealthy) > 0 {
		c.Status, c.Reason = operatorstatus.False, contract.PluginUnhealthy
		c.Message = "an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: " +
			strings.Join(unhealthy, ", ")
	}
	return c
}
