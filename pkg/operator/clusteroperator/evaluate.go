// Package clusteroperator keeps ClusterOperator/kms-health, the operator's own
// state as `oc get clusteroperators` shows it: the state of its configuration, of the
// deliveries and of the roll-ups, with inertia, so that a problem that ends by itself
// soon causes no alert.
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

// Input is the input of Evaluate.
type Input struct {
	Now time.Time
	// Inertia is how long something must be bad before it counts.
	Inertia time.Duration
	// Configuration is why the configuration file is rejected, empty where it is in
	// force; Configured means that some version is in force.
	Configuration string
	Configured    bool
	Targets       []Target
	// Previous are the current conditions, by type. Began is when this process began to
	// write them.
	Previous map[string]operatorcr.Condition
	Began    time.Time
	// Since has the time when each problem was first observed.
	Since map[string]time.Time
}

// Target is the state of one target.
type Target struct {
	Name     string
	Delivery delivery.Status // zero: not known yet
	Result   *rollup.Result  // nil: there is none
	// Unevaluated means that this process has not evaluated its roll-up yet.
	Unevaluated bool
}

// bad is a problem.
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
	conditions = []operatorcr.Condition{in.available(), in.progressing(), in.kept(degraded), in.kept(in.upgradeable(degraded))}
	for i := range conditions {
		conditions[i].Settle(in.Previous, in.Now)
	}
	return conditions, again
}

// problems are the problems, in the order in which they are reported.
func (in *Input) problems() []bad {
	var all []bad
	if in.Configuration != "" {
		all = append(all, bad{"configuration", operatorcr.True, "Configuration_Invalid", in.Configuration, time.Time{}})
	}
	for _, t := range in.Targets {
		if s := t.Delivery; s.Reason.NeedsAction() {
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

// severity is that of the statuses of Degraded and Upgradeable.
var severity = map[string]map[string]int{
	Degraded:    {operatorcr.Unknown: 1, operatorcr.True: 2},
	Upgradeable: {operatorcr.False: 1},
}

// kept is the condition of an earlier process, if it is more severe: what it was about may be
// a roll-up that this process has not evaluated yet.
func (in *Input) kept(c operatorcr.Condition) operatorcr.Condition {
	was, of := in.Previous[c.Type], severity[c.Type]
	if of[was.Status] > of[c.Status] && was.LastTransitionTime.Before(in.Began) &&
		slices.ContainsFunc(in.Targets, func(t Target) bool { return t.Unevaluated }) {
		return was
	}
	return c
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

// upgradeable is False while an upgrade, which restarts every API server, could leave one
// of them unable to read its Secrets.
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
