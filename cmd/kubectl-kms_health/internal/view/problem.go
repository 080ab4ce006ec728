package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
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
	// Verdict is the one that it leads to, Unhealthy or NotKnown.
	Verdict Verdict `json:"verdict"`
	// Reason is that of a condition of the operator.
	Reason string `json:"reason"`
	// APIServer, Node and KeyID are what it is about; empty: more than one, or none.
	APIServer string `json:"apiServer,omitempty"`
	Node      string `json:"node,omitempty"`
	KeyID     string `json:"keyID,omitempty"`
	Summary   string `json:"summary"`
	// Detail is text of others: the plugin's own words, an error, a condition's message.
	Detail string `json:"detail,omitempty"`
	// Since is when it began. If it is that of a condition about several plugins (AtEarliest), this
	// one may have begun later.
	Since      *metav1.Time `json:"since,omitempty"`
	AtEarliest bool         `json:"sinceAtEarliest,omitempty"`
	Next       *Command     `json:"next,omitempty"`
}

// Command is the one to run next.
type Command struct {
	// Node is where it runs; empty: where this command ran.
	Node    string `json:"node,omitempty"`
	Command string `json:"command"`
}

// reasons are those that the roll-up has for a plugin's state.
var reasons = map[rollup.State]string{
	rollup.Error: contract.PluginError, rollup.Unhealthy: contract.PluginUnhealthy,
	rollup.Unreadable: contract.ReportUnreadable, rollup.Skewed: contract.ClockSkew,
	rollup.Stale: contract.ReporterStale, rollup.Missing: contract.ReportsMissing,
}

// StateWords is the text of a state for people.
func StateWords(s rollup.State) string {
	switch s {
	case rollup.Skewed:
		return "clock differs"
	case rollup.Missing:
		return "not reported yet"
	}
	return string(s)
}

// evaluation turns a snapshot into the problems of a status.
type evaluation struct {
	*Status
	snapshot *Snapshot
	commands *commands
}

func newEvaluation(s *Snapshot, status *Status) *evaluation {
	e := &evaluation{Status: status, snapshot: s}
	e.commands = newCommands(s, status)
	return e
}

// judge sets the problems, the verdict and the summary.
func (e *evaluation) judge() {
	for _, err := range e.snapshot.Problems {
		e.add(Problem{Verdict: NotKnown, Reason: contract.SourceUnreadable, Summary: "not everything could be read", Detail: err.Error()})
	}
	e.judgeOperator()
	for i := range e.APIServers {
		e.judgePlugins(&e.APIServers[i])
		if e.Node == "" && e.Operator.ConditionsHold() {
			e.judgeConditions(&e.APIServers[i])
		}
	}
	if len(e.Problems) == 0 && e.count().all == 0 {
		e.add(Problem{Verdict: NotKnown, Reason: contract.NoPlugins, Summary: nothingReported, Next: e.commands.operatorLog()})
	}
	slices.SortStableFunc(e.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Verdict.rank(), b.Verdict.rank()), cmp.Compare(severity(a.Reason), severity(b.Reason)))
	})
	e.Verdict = Healthy
	if len(e.Problems) > 0 {
		e.Verdict = e.Problems[0].Verdict
	}
	e.Summary = e.summary()
}

func (e *evaluation) add(p Problem) { e.Problems = append(e.Problems, p) }

func (v Verdict) rank() int {
	return slices.Index([]Verdict{Unhealthy, NotKnown, Healthy}, v)
}

// severity orders reasons; those of the operator itself, which are in no table, follow those of
// plugins.
func severity(reason string) int {
	if at := contract.Severity(reason); at >= 0 {
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
			Verdict: NotKnown, Reason: cmp.Or(reasons[p.State], contract.ReportUnreadable), APIServer: a.Name, Node: p.Node, KeyID: p.KeyID,
			Summary: StateWords(p.State), Detail: p.Detail, Next: e.commands.ofPlugin(a, p),
		}
		if p.State.Unhealthy() {
			problem.Verdict = Unhealthy
			if p.Reason != "" {
				problem.Summary += ", " + string(p.Reason)
			}
		}
		problem.Since, problem.AtEarliest = since(a, p)
		e.add(problem)
	}
}

// since is when a state began: the last report of a plugin whose reports ended, else the condition
// that shows the state.
func since(a *APIServer, p *Plugin) (at *metav1.Time, atEarliest bool) {
	if p.State == rollup.Stale {
		return p.LastChecked, false
	}
	bad := Condition{Type: contract.HealthReporting, Status: operatorcr.False}
	if p.State.Unhealthy() {
		bad = Condition{Type: contract.PluginsDegraded, Status: operatorcr.True}
	}
	for _, c := range a.Conditions {
		if c.Type == bad.Type && c.Status == bad.Status && !c.LastTransitionTime.IsZero() {
			return &c.LastTransitionTime, true
		}
	}
	return nil, false
}

// judgeConditions adds what the operator found, and no report shows.
func (e *evaluation) judgeConditions(a *APIServer) {
	for i := range a.Conditions {
		c := &a.Conditions[i]
		verdict := c.verdict()
		if verdict == Healthy || e.covered(a, c) {
			continue
		}
		e.add(Problem{
			Verdict: verdict, Reason: c.Reason, APIServer: a.Name, Summary: fmt.Sprintf("%s is %s, %s", c.Type, c.Status, c.Reason),
			Detail: c.Message, Since: timeOf(c.LastTransitionTime.Time), Next: e.commands.ofCondition(a, c),
		})
	}
}

// verdict is what a condition of the operator means. Where there is no API server, reports are not
// expected, and the agreement on a key is no matter of health.
func (c *Condition) verdict() Verdict {
	switch {
	case c.Type == contract.PluginsDegraded && c.Status == operatorcr.True:
		return Unhealthy
	case c.AsExpected(), c.Reason == contract.NamespaceMissing, c.Reason == contract.NoPods:
		return Healthy
	case c.Type == contract.PluginsDegraded && c.Status == operatorcr.Unknown, c.Type == contract.HealthReporting:
		return NotKnown
	}
	return Healthy
}

// covered reports whether the problems have what a condition shows.
func (e *evaluation) covered(a *APIServer, c *Condition) bool {
	reason := c.Reason
	if reason == contract.Progressing {
		reason = contract.ReportsMissing
	}
	return slices.ContainsFunc(e.Problems, func(p Problem) bool { return p.APIServer == a.Name && p.Reason == reason })
}

// count is how many plugins there are, and on how many nodes.
type count struct{ all, healthy, unhealthy, nodes, badNodes int }

func (s *Status) count() (c count) {
	nodes := map[string]bool{}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			c.all++
			if p.State == rollup.Healthy {
				c.healthy++
			}
			if p.State.Unhealthy() {
				c.unhealthy++
			}
			nodes[p.Node] = nodes[p.Node] || p.State.Unhealthy()
		}
	}
	c.nodes = len(nodes)
	for _, bad := range nodes {
		if bad {
			c.badNodes++
		}
	}
	return c
}

// summary is the verdict as a sentence, with its numbers.
func (e *evaluation) summary() string {
	head := map[Verdict]string{Healthy: "Healthy", Unhealthy: "Unhealthy", NotKnown: "Not known"}[e.Verdict]
	if e.snapshot.FromFiles {
		head += fmt.Sprintf(" as of %s, %s ago", e.Time.UTC().Format(time.RFC3339), duration.HumanDuration(e.snapshot.FilesAge))
	}
	c := e.count()
	plugins := plural(c.all, "KMS plugin")
	switch unknown := c.all - c.healthy - c.unhealthy; {
	case c.unhealthy > 0:
		plugins = fmt.Sprintf("%d of %s %s unhealthy, on %d of %s", c.unhealthy, plugins, are(c.unhealthy), c.badNodes, plural(c.nodes, "node"))
		if unknown > 0 {
			plugins += fmt.Sprintf("; %d %s not known", unknown, are(unknown))
		}
		return head + ": " + plugins + "."
	case unknown > 0:
		return fmt.Sprintf("%s: the state of %d of %s is not known.", head, unknown, plugins)
	case c.all == 0:
		plugins = nothingReported
	default:
		plugins = fmt.Sprintf("%s on %s %s healthy", plugins, plural(c.nodes, "node"), are(c.all))
	}
	if len(e.Problems) > 0 && e.Problems[0].Summary != nothingReported {
		first := &e.Problems[0]
		plugins += "; " + strings.TrimPrefix(first.APIServer+": ", ": ") + first.Summary
	}
	return head + ": " + plugins + "."
}

const nothingReported = "no KMS plugin is reported"

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
