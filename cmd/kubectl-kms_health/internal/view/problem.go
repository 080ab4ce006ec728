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

// Error lets a command end with a verdict that is not Healthy, after its complete output.
func (v Verdict) Error() string { return string(v) }

// Problem is one reason of a verdict that is not Healthy.
type Problem struct {
	Verdict Verdict `json:"verdict"` // that it leads to, Unhealthy or NotKnown
	Reason  string  `json:"reason"`  // of a condition, an OperatorState, or contract.RoundTripAwaited
	// APIServer, Nodes and KeyID are what it is about; empty: more than one, or none.
	APIServer string   `json:"apiServer,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	AllNodes  bool     `json:"allNodes,omitempty"` // the cause is the KMS itself, or what the nodes share
	KeyID     string   `json:"keyID,omitempty"`
	Summary   string   `json:"summary"`
	// Detail is text of others, in lines: the plugins' own words, an error, a condition's message.
	Detail string `json:"detail,omitempty"`
	Next   string `json:"next,omitempty"` // the command to run next
	// Fix and DoNot are usually the runbook's: a disconnected cluster cannot open that page.
	Fix   string `json:"fix,omitempty"`
	DoNot string `json:"doNot,omitempty"`

	Cause string `json:"-"` // the plugin's reason, which has a runbook of its own; empty: Reason
}

// states are those of a plugin that is not known to be healthy: the roll-up's reason, and what a summary adds.
var states = map[rollup.State]struct{ reason, text string }{
	rollup.Error:      {contract.PluginError, ""},
	rollup.Unhealthy:  {contract.PluginUnhealthy, ""},
	rollup.Stale:      {contract.ReporterStale, " by the node's clock: the reporter has stopped, or that clock is wrong"},
	rollup.Unreadable: {contract.ReportUnreadable, ""},
	rollup.Missing:    {contract.ReportsMissing, ": no report yet"},
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
	if len(e.Problems) == 0 && e.plugins() == nothingReported {
		p := Problem{Verdict: NotKnown, Reason: contract.NoPlugins, Summary: nothingReported, Next: e.operatorLog()}
		if len(e.APIServers) == 0 || !e.APIServers[0].has(contract.NoPlugins) {
			p.Cause = "KMSNothingReported" // the alert
		}
		e.add(p)
	}
	e.conclude()
}

// add adds a problem. Those of one API server that differ in nodes and details alone are one.
func (e *evaluation) add(p Problem) {
	at := slices.IndexFunc(e.Problems, func(o Problem) bool {
		return o.APIServer == p.APIServer && o.KeyID == p.KeyID && o.Summary == p.Summary
	})
	if at < 0 {
		e.Problems = append(e.Problems, p.withFix())
		return
	}
	same := &e.Problems[at]
	same.Nodes = append(same.Nodes, p.Nodes...)
	if !strings.Contains(same.Detail, p.Detail) {
		same.Detail += "\n" + p.Detail
	}
}

// withFix sets what the runbook has.
func (p Problem) withFix() Problem {
	runbook, _ := contract.RunbookOf(cmp.Or(p.Cause, p.Reason))
	p.Fix, p.DoNot = cmp.Or(p.Fix, runbook.Fix), runbook.DoNot
	if p.Verdict == Unhealthy && p.KeyID != "" {
		p.DoNot = cmp.Or(p.DoNot, contract.UnhealthyDoNot)
	}
	return p
}

// severity is the place of a problem among those of its verdict: the lower, the more severe. Reasons of the operator
// itself, which are in no table, follow those of plugins.
func (p *Problem) severity() int {
	if at := contract.Severity(p.Reason); at >= 0 {
		return at
	}
	return contract.Severity(contract.OtherInstallation)
}

// judgePlugins adds the plugins that are not known to be healthy.
func (e *evaluation) judgePlugins(a *APIServer) {
	for i := range a.Plugins {
		p := &a.Plugins[i]
		if p.State == rollup.Healthy {
			continue
		}
		problem := Problem{
			Verdict: NotKnown, Reason: states[p.State].reason, APIServer: a.Name, Nodes: []string{p.Node}, KeyID: p.KeyID,
			Summary: string(p.State) + states[p.State].text, Detail: p.Detail, Next: e.ofPlugin(a, p),
		}
		if p.State.Unhealthy() {
			problem.Verdict = Unhealthy
		}
		if p.State == rollup.Missing && a.has(contract.Progressing) {
			problem.Reason = contract.Progressing
		}
		if p.Reason != "" {
			problem.Cause = string(p.Reason)
			problem.Summary += " (" + problem.Cause + ")"
		}
		e.add(problem)
	}
	nodes := sets.New[string]()
	for _, p := range a.Plugins {
		nodes.Insert(p.Node)
	}
	for i := range e.Problems {
		p := &e.Problems[i]
		absent := slices.Contains([]string{"", string(contract.ConnectFailed), string(contract.SocketMissing)}, p.Cause)
		answers := p.Reason == contract.PluginUnhealthy || p.Reason == contract.PluginError && !absent
		if p.APIServer == a.Name && len(p.Nodes) > 1 {
			p.AllNodes = answers && len(p.Nodes) == len(nodes)
		}
	}
}

// judgeConditions adds what the operator found, and no report shows.
func (e *evaluation) judgeConditions(a *APIServer) {
	for i := range a.Conditions {
		c := &a.Conditions[i]
		if verdict := conditionVerdict(c); verdict != Healthy && !a.notRunning() && !e.Shown(a.Name, c.Reason) {
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

// conditionVerdict is what a condition of the operator means. The agreement on a key is no matter of health.
func conditionVerdict(c *metav1.Condition) Verdict {
	switch {
	case AsExpected(c):
		return Healthy
	case c.Type == contract.PluginsDegraded && c.Status == operatorstatus.True:
		return Unhealthy
	case c.Type == contract.PluginsDegraded && c.Status == operatorstatus.Unknown, c.Type == contract.HealthReporting:
		return NotKnown
	}
	return Healthy
}

const nothingReported = "no KMS plugin is reported"

// plugins is how many plugins are in which state.
func (s *Status) plugins() string {
	counts := map[rollup.State]int{}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			counts[p.State]++
		}
	}
	var all []string
	for _, state := range rollup.States {
		if counts[state] > 0 {
			all = append(all, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	if len(all) == 0 {
		return nothingReported
	}
	return "KMS plugins: " + strings.Join(all, ", ")
}

// conclude sorts the problems, and sets the verdict, and the summary: the verdict as a sentence, with its numbers.
func (e *evaluation) conclude() {
	slices.SortStableFunc(e.Problems, func(a, b Problem) int {
		return cmp.Or(a.Verdict.ExitCode()-b.Verdict.ExitCode(), a.severity()-b.severity())
	})
	e.Verdict = Healthy
	if len(e.Problems) > 0 {
		e.Verdict = e.Problems[0].Verdict
	}
	e.Summary = map[Verdict]string{Healthy: "Healthy", Unhealthy: "Unhealthy", NotKnown: "Not known"}[e.Verdict]
	if e.snapshot.FromFiles {
		e.Summary += " as of " + duration.HumanDuration(e.snapshot.FilesAge) + " ago"
	}
	// A problem that is not about a node explains the verdict better than plugins.
	if len(e.Problems) > 0 && len(e.Problems[0].Nodes) == 0 && e.Problems[0].Summary != nothingReported {
		first := &e.Problems[0]
		e.Summary += ": " + strings.TrimPrefix(first.APIServer+": ", ": ") + first.Summary + ";"
	} else {
		e.Summary += ":"
	}
	e.Summary += " " + e.plugins() + "."
}
