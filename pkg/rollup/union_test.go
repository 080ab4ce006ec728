package rollup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// inertia is the inertia of a StatusSyncer for Degraded.
const inertia = 2 * time.Minute

// cluster is simulated second by second. The resulting conditions are the next input.
type cluster struct {
	interval   time.Duration
	sick       string // the node of which all reports say unhealthy; empty: none
	conditions map[string]operatorstatus.Condition
	checked    map[string]time.Time // by node, the last healthy check
	agreement  Agreement
	writes     int
	// seen are the statuses of a ClusterOperator's Degraded, in order, without repetitions.
	seen []string
}

// second simulates one second. Nodes that are not stopped report when their interval has passed. It returns the
// ClusterOperator's Degraded, as OpenShift's StatusSyncer computes it (library-go, operator/status, UnionCondition):
// False until KMSPluginsDegraded has been bad for longer than the inertia.
func (c *cluster) second(at time.Time, nodes []Node, stopped func(node string) bool) string {
	var reports []Report
	for _, name := range []string{"a", "b", "c"} {
		if !stopped(name) && at.Sub(c.checked[name]) >= c.interval {
			c.checked[name] = at
		}
		e := healthy("2", 0)
		if name == c.sick {
			e = unhealthy("2", 0, "sealed")
		}
		e.Interval, e.Changed = c.interval, c.checked[name]
		reports = append(reports, from(name, e))
	}
	at = at.Add(500 * time.Millisecond)
	result := Evaluate(&Input{Now: at, Wall: at, WriteKey: "2", Nodes: nodes, Reports: reports, Previous: c.conditions,
		Agreement: c.agreement})
	c.agreement = result.Agreement
	if !result.Same(c.conditions) {
		c.writes++
		c.conditions = result.Conditions
	}
	union := operatorstatus.False
	if own := result.Conditions[contract.PluginsDegraded]; own.LastTransitionTime.Before(at.Add(-inertia)) {
		union = own.Status
	}
	c.seen = slices.Compact(append(c.seen, union))
	return union
}

func newCluster(interval time.Duration) *cluster {
	return &cluster{interval: interval, checked: map[string]time.Time{"a": now, "b": now, "c": now}}
}

// Three API servers are rolled out, one node at a time. Each is down for as long as kube-apiserver may take to end and
// to start again.
func TestARolloutDoesNotTurnAClusterOperator(t *testing.T) {
	for _, interval := range []int{1, 10, 60} {
		for _, ready := range []bool{true, false} {
			for _, pod := range []string{"replaced at once", "replaced late", "replaced last", "away", "away to the last",
				"leaving"} {
				for _, silence := range []int{60, 180} {
					name := fmt.Sprintf("interval %ds, Ready %v, pod %s, stopped for %ds", interval, ready, pod, silence)
					t.Run(name, func(t *testing.T) { rollout(t, interval, ready, pod, silence) })
				}
			}
		}
	}
}

func rollout(t *testing.T, interval int, ready bool, pod string, silence int) {
	c := newCluster(time.Duration(interval) * time.Second)
	const turn = 300 // seconds between one node's turn and the next
	for s := range 3*turn + 100 {
		at := now.Add(time.Duration(s) * time.Second)
		var nodes []Node
		stopped := map[string]bool{}
		for i, name := range []string{"a", "b", "c"} {
			n := on(name, "2")
			begun := s - i*turn // seconds since its API server began to end
			stopped[name] = begun >= 0 && begun < silence
			made := 0 // when the new pod is seen, in seconds after begun
			switch pod {
			case "replaced late", "away":
				made = silence / 2
			case "replaced last", "away to the last", "leaving":
				made = silence - 1
			}
			if stopped[name] {
				n.Ready, n.DownUntil = ready, at.Add(time.Minute)
			}
			if begun >= made {
				n.PodSeen = at.Add(-time.Duration(begun-made) * time.Second)
				n.Due = n.PodSeen.Add(FirstReport)
				n.QuietUntil = n.PodSeen.Add(QuietPeriod)
			} else if begun >= 0 {
				if strings.HasPrefix(pod, "away") {
					continue
				}
				if pod == "leaving" { // its container has ended
					n.QuietUntil = at.Add(QuietPeriod - time.Duration(begun)*time.Second)
				}
			}
			nodes = append(nodes, n)
		}
		u := c.second(at, nodes, func(node string) bool { return stopped[node] })
		// Unknown is allowed only where the node looks as if its reporter hangs, for three minutes less four intervals.
		hangs := interval < 30 && pod == "replaced last" && ready
		if u == operatorstatus.True || u == operatorstatus.Unknown && !hangs {
			t.Fatalf("after %ds it is %s: %+v", s, u, c.conditions[contract.PluginsDegraded])
		}
	}
	if got := c.seen[len(c.seen)-1]; got != operatorstatus.False ||
		c.conditions[contract.PluginsDegraded].Reason != contract.AsExpected ||
		c.conditions[contract.HealthReporting].Status != operatorstatus.True {
		t.Errorf("it ends with %v and %v", got, c.conditions)
	}
	// At most six writes per node, and the first one.
	if c.writes > 1+3*6 {
		t.Errorf("%d writes", c.writes)
	}
}

// Without a replacement, a hanging reporter makes Degraded Unknown, not True. Where its plugin was unhealthy, Degraded
// stays True: Unknown would be a transition, and a StatusSyncer would report nothing for its inertia.
func TestAReporterThatHangsIsNotAnUnhealthyPlugin(t *testing.T) {
	for sick, want := range map[string]string{"": operatorstatus.Unknown, "b": operatorstatus.True} {
		c := newCluster(30 * time.Second)
		c.sick = sick
		for s := range 600 {
			c.second(now.Add(time.Duration(s)*time.Second), abc("2"), func(node string) bool { return node == "b" && s >= 60 })
		}
		if !slices.Equal(c.seen, []string{operatorstatus.False, want}) || c.writes != 2 {
			t.Errorf("unhealthy on node %q: Degraded was %v, in %d writes", sick, c.seen, c.writes)
		}
	}
}
