package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Verdict is the overall result.
type Verdict string

// The verdicts.
const (
	Healthy   Verdict = "Healthy"
	Unhealthy Verdict = "Unhealthy"
	NotKnown  Verdict = "NotKnown"
)

// ExitCode is the same in all programs.
func (v Verdict) ExitCode() int {
	return map[Verdict]int{Healthy: 0, Unhealthy: 1, NotKnown: 2}[v]
}

// Problem is one reason of a verdict that is not Healthy.
type Problem struct {
	Verdict Verdict `json:"verdict"` // that it leads to, Unhealthy or NotKnown
	Reason  string  `json:"reason"`  // of a condition, an OperatorState, or contract.RoundTripAwaited
	// APIServer, Node and KeyID are what it is about; empty: more than one, or none.
	APIServer string `json:"apiServer,omitempty"`
	Node      string `json:"node,omitempty"`
	KeyID     string `json:"keyID,omitempty"`
	Summary   string `json:"summary"`
	// Detail is text of others: the plugin's own words, an error, a condition's message.
	Detail string   `json:"detail,omitempty"`
	Next   *Command `json:"next,omitempty"`
	// Fix and DoNot are usually the runbook's: a disconnected cluster cannot open that page.
	Fix   string `json:"fix,omitempty"`
	DoNot string `json:"doNot,omitempty"`

	Cause string `json:"-"` // the plugin's reason, which has a runbook of its own; empty: Reason
}

// Command is the one to run next.
type Command struct {
	Command string `json:"command"`
}

// reasons are those that the roll-up has for a plugin's state.
var reasons = map[rollup.State]string{
	rollup.Error: contract.PluginError, rollup.Unhealthy: contract.PluginUnhealthy, rollup.Stale: contract.ReporterStale,
	rollup.Unreadable: contract.ReportUnreadable, rollup.Missing: contract.ReportsMissing,
}

// evaluation turns a snapshot into the problems of a status.
type evaluation struct {
	*Status
	snapshot *Snapshot
	// The following are for commands.
	tool    string // oc or kubectl
	pods    []*corev1.Pod
	servers map[string]contract.APIServer // by name
}

// judge sets the problems, the verdict and the summary. All means that nothing was selected.
func (e *evaluation) judge(all bool) {
	for _, err := range e.snapshot.Problems {
		e.add(Problem{Verdict: NotKnown, Reason: contract.SourceUnreadable, Detail: err.Error(),
			Summary: "not everything could be read"})
	}
	if e.Node == "" {
		e.judgeOperator()
		e.judgeConfiguration(all)
	}
	for i := range e.APIServers {
		e.judgePlugins(&e.APIServers[i])
		if e.Node == "" && e.Operator.ConditionsHold() {
			e.judgeConditions(&e.APIServers[i])
		}
	}
	if len(e.Problems) == 0 && e.count().all == 0 {
		p := Problem{Verdict: NotKnown, Reason: contract.NoPlugins, Summary: nothingReported, Next: e.operatorLog()}
		if len(e.APIServers) == 0 || !e.APIServers[0].has(contract.NoPlugins) {
			p.Cause = "KMSNothingReported" // the alert
		}
		e.add(p)
	}
	slices.SortStableFunc(e.Problems, func(a, b Problem) int { return cmp.Compare(a.severity(), b.severity()) })
	e.Verdict = Healthy
	if len(e.Problems) > 0 {
		e.Verdict = e.Problems[0].Verdict
	}
	e.Summary = e.summary()
}

func (e *evaluation) add(p Problem) {
	runbook, _ := contract.RunbookOf(cmp.Or(p.Cause, p.Reason))
	p.Fix, p.DoNot = cmp.Or(p.Fix, runbook.Fix), runbook.DoNot
	if p.Verdict == Unhealthy && p.KeyID != "" {
		p.DoNot = cmp.Or(p.DoNot, contract.UnhealthyDoNot)
	}
	e.Problems = append(e.Problems, p)
}

// severity is the place of a problem: the lower, the more severe. Reasons of the operator itself,
// which are in no table, follow those of plugins.
func (p *Problem) severity() int {
	at := contract.Severity(p.Reason)
	if at < 0 {
		at = contract.Severity(contract.OtherInstallation)
	}
	if p.Verdict != Unhealthy {
		at += len(contract.RollupReasons)
	}
	return at
}

// judgePlugins adds the plugins that are not known to be healthy.
func (e *evaluation) judgePlugins(a *APIServer) {
	for i := range a.Plugins {
		p := &a.Plugins[i]
		if p.State == rollup.Healthy {
			continue
		}
		problem := Problem{
			Verdict: NotKnown, Reason: reasons[p.State], APIServer: a.Name, Node: p.Node, KeyID: p.KeyID,
			Summary: string(p.State), Detail: p.Detail, Next: e.ofPlugin(a, p),
		}
		switch {
		case p.State.Unhealthy():
			problem.Verdict = Unhealthy
		case p.State == rollup.Stale:
			problem.Summary += " by the node's clock: the reporter has stopped, or that clock is wrong"
		case p.State == rollup.Missing:
			problem.Summary += ": no report yet"
			if a.has(contract.Progressing) {
				problem.Reason = contract.Progressing
			}
		}
		if p.Reason != "" {
			problem.Cause = string(p.Reason)
			problem.Summary += " (" + problem.Cause + ")"
		}
		e.add(problem)
	}
}

// judgeConditions adds what the operator found, and no report shows.
func (e *evaluation) judgeConditions(a *APIServer) {
	for i := range a.Conditions {
		c := &a.Conditions[i]
		notRunning := c.Reason == contract.NoPods && a.notRunning()
		if verdict := conditionVerdict(c); verdict != Healthy && !notRunning && !e.Shown(a.Name, c.Reason) {
			e.add(Problem{Verdict: verdict, Reason: c.Reason, APIServer: a.Name, Summary: ConditionText(c),
				Detail: c.Message, Next: e.ofCondition(a, c)})
		}
	}
}

// has reports whether a condition has the reason.
func (a *APIServer) has(reason string) bool {
	return slices.ContainsFunc(a.Conditions, func(c metav1.Condition) bool { return c.Reason == reason })
}

// notRunning reports whether it is one of OpenShift's that need not run, as oauth-apiserver with external OIDC: the
// operator found no pod or namespace, and nothing is reported. For any other API server, the operator's file is wrong.
func (a *APIServer) notRunning() bool {
	absent := a.has(contract.NoPods) || a.has(contract.NamespaceMissing)
	return absent && len(a.Plugins) == 0 && !a.Target.PerAPIServer()
}

// Shown reports whether an API server has a problem with the reason.
func (s *Status) Shown(apiServer, reason string) bool {
	return slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.APIServer == apiServer && p.Reason == reason })
}

// ConditionText is a condition without its message.
func ConditionText(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason)
}

// conditionVerdict is what a condition of the operator means. Without a namespace no API server is
// expected, and the agreement on a key is no matter of health.
func conditionVerdict(c *metav1.Condition) Verdict {
	switch {
	case c.Type == contract.PluginsDegraded && c.Status == operatorstatus.True:
		return Unhealthy
	case AsExpected(c), c.Reason == contract.NamespaceMissing:
		return Healthy
	case c.Type == contract.PluginsDegraded && c.Status == operatorstatus.Unknown, c.Type == contract.HealthReporting:
		return NotKnown
	}
	return Healthy
}

// count is how many plugins there are, and on which nodes.
type count struct {
	all, healthy, unhealthy int
	nodes                   sets.Set[string]
}

func (s *Status) count() count {
	c := count{nodes: sets.New[string]()}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			c.all++
			c.nodes.Insert(p.Node)
			switch {
			case p.State == rollup.Healthy:
				c.healthy++
			case p.State.Unhealthy():
				c.unhealthy++
			}
		}
	}
	return c
}

// Nodes is how many nodes an API server has.
func (s *Status) Nodes(apiServer string) int {
	others := func(a APIServer) bool { return a.Name != apiServer }
	of := Status{APIServers: slices.DeleteFunc(slices.Clone(s.APIServers), others)}
	return of.count().nodes.Len()
}

const nothingReported = "no KMS plugin is reported"

// summary is the verdict as a sentence, with its numbers.
func (e *evaluation) summary() string {
	head := map[Verdict]string{Healthy: "Healthy", Unhealthy: "Unhealthy", NotKnown: "Not known"}[e.Verdict]
	if e.snapshot.FromFiles {
		head += " as of " + duration.HumanDuration(e.snapshot.FilesAge) + " ago"
	}
	c := e.count()
	plugins, unknown := plural(c.all, "KMS plugin"), c.all-c.healthy-c.unhealthy
	switch {
	case c.unhealthy > 0:
		plugins = fmt.Sprintf("%d of %s unhealthy", c.unhealthy, plugins)
		if unknown > 0 {
			plugins += fmt.Sprintf("; %d not known", unknown)
		}
	case unknown > 0:
		plugins = fmt.Sprintf("the state of %d of %s is not known", unknown, plugins)
	case c.all == 0:
		plugins = nothingReported
	default:
		plugins += " healthy, on " + plural(c.nodes.Len(), "node")
	}
	// A problem that is not about a node explains the verdict better than plugins.
	if len(e.Problems) > 0 && e.Problems[0].Node == "" && e.Problems[0].Summary != nothingReported {
		first := &e.Problems[0]
		plugins = strings.TrimPrefix(first.APIServer+": ", ": ") + first.Summary + "; " + plugins
	}
	return head + ": " + plugins + "."
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
