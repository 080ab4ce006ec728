// Package clusteroperator keeps ClusterOperator/kms-health, the operator's own
// state as `oc get clusteroperators` shows it: the state of its configuration, of the
// deliveries and of the roll-ups, with inertia, so that what recovers by itself in a
// moment alarms nobody.
package clusteroperator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// The conditions of a ClusterOperator (config.openshift.io/v1).
const (
	Available   = "Available"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Upgradeable = "Upgradeable"
)

const asExpected = "AsExpected"

// Input is what a state stands on.
type Input struct {
	Now time.Time
	// Inertia is how long something must be bad before it counts.
	Inertia time.Duration
	// Configuration is why the configuration file is rejected, empty where it is in
	// force as it stands; Configured says that some version is.
	Configuration string
	Configured    bool
	Targets       []Target
	// Previous are the conditions as they stand, by type.
	Previous map[string]operatorcr.Condition
	// Since has, of each thing that is bad, when it was first seen so.
	Since map[string]time.Time
}

// Target is what is known of one target.
type Target struct {
	Name     string
	Delivery delivery.Status // zero: not known yet
	Result   *rollup.Result  // nil: there is none
}

// bad is something that is not as it should be.
type bad struct {
	id      string // stays the same as long as it is the same thing
	status  string // of Degraded if there were nothing else
	reason  string
	message string
	since   time.Time // zero: since it was first seen
}

// Evaluate returns the four conditions, and when they may be others though nothing
// happens; zero: never. It keeps Since.
func Evaluate(in *Input) (conditions []operatorcr.Condition, again time.Time) {
	problems := in.problems()
	for i := range problems {
		b := &problems[i]
		if b.since.IsZero() {
			if _, seen := in.Since[b.id]; !seen {
				in.Since[b.id] = in.Now
			}
			b.since = in.Since[b.id]
		}
	}
	for id := range in.Since {
		if !slices.ContainsFunc(problems, func(b bad) bool { return b.id == id }) {
			delete(in.Since, id)
		}
	}
	degraded, again := in.degraded(problems)
	conditions = []operatorcr.Condition{in.available(), in.progressing(), degraded, in.upgradeable(degraded)}
	for i := range conditions {
		conditions[i].Settle(in.Previous, in.Now)
	}
	return conditions, again
}

// problems are what is bad, in the order in which it is reported.
func (in *Input) problems() []bad {
	var all []bad
	if in.Configuration != "" {
		all = append(all, bad{"configuration", operatorcr.True, "Configuration_Invalid", in.Configuration, time.Time{}})
	}
	for _, t := range in.Targets {
		if s := t.Delivery; s.Reason.Trouble() {
			all = append(all, bad{t.Name + "/delivery", operatorcr.True, "Delivery_" + string(s.Reason), t.Name + ": " + s.Message, time.Time{}})
		}
		if c, ok := ofPlugins(t); ok && c.Status != operatorcr.False {
			all = append(all, bad{t.Name + "/" + c.Type, c.Status, "KMSPlugins_" + c.Reason, prefixed(t.Name, c.Message), c.LastTransitionTime})
		}
	}
	return all
}

func ofPlugins(t Target) (operatorcr.Condition, bool) {
	if t.Result == nil {
		return operatorcr.Condition{}, false
	}
	return t.Result.Condition(rollup.Degraded), true
}

func prefixed(name, message string) string {
	return name + ": " + strings.ReplaceAll(message, "\n", "\n"+name+": ")
}

// degraded unites what is bad as a StatusSyncer unites conditions: nothing counts
// before one thing was bad for the inertia, then all of it does. What was reported
// before goes on counting.
func (in *Input) degraded(problems []bad) (c operatorcr.Condition, again time.Time) {
	c = operatorcr.Condition{Type: Degraded, Status: operatorcr.False, Reason: asExpected}
	old := in.Previous[Degraded].Status == operatorcr.True || in.Previous[Degraded].Status == operatorcr.Unknown
	for _, b := range problems {
		// Later than the inertia, as library-go has it (pkg/operator/status).
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
		c.Status, c.Reason, c.Message = operatorcr.False, "NoConfiguration", "no configuration is in force"
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
		if s := t.Delivery; s.Reason.UnderWay() && s.Message != "" {
			c.Status, c.Reason = operatorcr.True, string(s.Reason)
			lines = append(lines, t.Name+": "+s.Message)
		}
	}
	c.Message = strings.Join(lines, "\n")
	return c
}

// upgradeable says that an upgrade, which restarts every API server, is no good
// idea while one of them could not read its Secrets afterwards.
func (in *Input) upgradeable(degraded operatorcr.Condition) operatorcr.Condition {
	c := operatorcr.Condition{Type: Upgradeable, Status: operatorcr.True, Reason: asExpected}
	if degraded.Status != operatorcr.True {
		return c
	}
	var unhealthy []string
	for _, t := range in.Targets {
		if c, ok := ofPlugins(t); ok && c.Status == operatorcr.True && c.Reason != rollup.ReporterNotRunning {
			unhealthy = append(unhealthy, t.Name)
		}
	}
	if len(unhealthy) > 0 {
		c.Status, c.Reason = operatorcr.False, "PluginUnhealthy"
		c.Message = fmt.Sprintf("an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: %s", strings.Join(unhealthy, ", "))
	}
	return c
}
