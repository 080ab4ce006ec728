package rollup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

const (
	lost = "Unknown ReportsMissing"
	long = 3600 // seconds, longer ago than FirstReport
)

// awaited is a node that does not report. Its API server was started, its reporter created,
// and its plugin first seen as expected these seconds ago.
func awaited(startedAgo, createdAgo, seenAgo int) Node {
	n := on("a", "2")
	n.Started, n.ReporterCreated = ago(startedAgo), ago(createdAgo)
	n.ExpectedSince = map[string]time.Time{"2": ago(seenAgo)}
	return n
}

func noReporter() Node {
	n := awaited(long, 0, long)
	n.ReporterCreated = time.Time{}
	return n
}

func unknownKeys() Node {
	n := on("a")
	n.Started, n.ExpectedSince = ago(long), map[string]time.Time{"": ago(long)}
	return n
}

func TestPluginThatIsNeverReportedIsUnknownAfterFiveMinutes(t *testing.T) {
	was := func(status, reason string) map[string]operatorcr.Condition {
		c := operatorcr.Condition{Type: contract.PluginsDegraded, Status: status, Reason: reason, Message: "x"}
		return map[string]operatorcr.Condition{c.Type: c}
	}
	standing := was(operatorcr.Unknown, contract.ReportsMissing)
	unhealthyBefore := was(operatorcr.True, contract.PluginError)
	silentBefore := was(operatorcr.Unknown, contract.ReporterStale)
	for _, tt := range []struct {
		name     string
		node     Node
		previous map[string]operatorcr.Condition
		began    int // seconds ago
		want     string
		deadline time.Time // zero: none
	}{
		{"the API server was just started", awaited(0, long, long), nil, long, awaiting, in(300)},
		{"the API server was started 299 s ago", awaited(299, long, long), nil, long, awaiting, in(1)},
		{"the API server was started 300 s ago", awaited(300, long, long), nil, long, lost, time.Time{}},
		{"the reporter was created 299 s ago", awaited(long, 299, long), nil, long, awaiting, in(1)},
		{"the reporter was created 300 s ago", awaited(long, 300, long), nil, long, lost, time.Time{}},
		{"there is no reporter", noReporter(), nil, long, lost, time.Time{}},
		{"an installation, or a reload of the encryption config: first expected 299 s ago", awaited(long, long, 299), nil,
			long, awaiting, in(1)},
		{"first expected 300 s ago", awaited(long, long, 300), nil, long, lost, time.Time{}},
		{"a cold start: the latest counts", awaited(200, 100, 150), nil, 250, awaiting, in(200)},
		{"the latest is when it was first expected", awaited(200, 150, 100), nil, 250, awaiting, in(200)},
		{"its plugins are not known", unknownKeys(), nil, long, lost, time.Time{}},
		{"its API server crashes, and is restarted again and again", replacing(60, awaited(long, long, long)), nil, long,
			lost, in(60)},
		{"excused: its Node is not Ready", down(awaited(long, long, long)), nil, long, awaiting, time.Time{}},

		{"another process: what it had found stays", awaited(long, long, 10), standing, 10, lost, in(290)},
		{"another process: what it had found would be found again", awaited(long, long, 300), standing, 300,
			lost, time.Time{}},
		{"another process, and the API server is restarted", awaited(5, long, 10), standing, 10, awaiting, in(295)},
		{"another process had found a silent reporter, which was deleted since", awaited(long, long, 10), silentBefore, 10,
			lost, in(290)},
		{"another process had found something else", awaited(long, long, 10), unhealthyBefore, 10, awaiting, in(290)},
		{"the same process, a plugin more", awaited(long, long, 10), standing, long, awaiting, in(290)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Began: ago(tt.began), Nodes: []Node{tt.node}, Previous: tt.previous})
			c := got.Condition(contract.PluginsDegraded)
			if have := c.Status + " " + c.Reason; have != tt.want {
				t.Errorf("%s, want %s", have, tt.want)
			}
			if !got.Deadline.Equal(tt.deadline) {
				t.Errorf("evaluated again in %s, want in %s", got.Deadline.Sub(now), tt.deadline.Sub(now))
			}
			reporting := contract.Progressing
			if tt.want == lost || strings.HasPrefix(tt.name, "excused") {
				reporting = contract.ReportsMissing // nothing excuses that a node does not report
			}
			if c := got.Condition(contract.HealthReporting); c.Status != operatorcr.False || c.Reason != reporting {
				t.Errorf("%+v", c)
			}
		})
	}
}

// One plugin of a node can be missing while others are reported.
func TestPluginThatIsMissingInAReportIsUnknownAfterFiveMinutes(t *testing.T) {
	n := on("a", "2", "1")
	n.Started, n.ExpectedSince = ago(long), map[string]time.Time{"2": ago(long), "1": ago(299)}
	in := Input{Now: now, Nodes: []Node{n}, Reports: list{from("a", every(3600, healthy("2", 5)))}}
	got := Evaluate(&in)
	if c := got.Condition(contract.PluginsDegraded); c.Status+" "+c.Reason != awaiting || !got.Deadline.Equal(ago(-1)) {
		t.Errorf("%+v until %s", c, got.Deadline)
	}
	in.Now = got.Deadline
	if c := Evaluate(&in).Condition(contract.PluginsDegraded); c.Status+" "+c.Reason != lost ||
		c.Message != "key 1 on the one node: not reported yet" && c.Message != "key 1 on node a: not reported yet" {
		t.Errorf("%+v", c)
	}
}

func TestExpectationsBeginWhenAPluginIsFirstExpected(t *testing.T) {
	x := Expectations{}
	observe := func(at int, nodes ...Node) []map[string]time.Time {
		x.Observe(nodes, ago(-at))
		var all []map[string]time.Time
		for _, n := range nodes {
			all = append(all, n.ExpectedSince)
		}
		return all
	}
	at := func(seconds int) time.Time { return ago(-seconds) }
	type since = map[string]time.Time
	for _, step := range []struct {
		at    int
		nodes []Node
		want  []since
	}{
		{0, []Node{on("a", "1"), on("b")}, []since{{"1": at(0)}, {"": at(0)}}},
		{10, []Node{on("a", "1"), on("b", "1")}, []since{{"1": at(0)}, {"1": at(10)}}},
		{20, []Node{on("a", "2", "1"), on("b", "1")}, []since{{"1": at(0), "2": at(20)}, {"1": at(10)}}},
		{30, []Node{on("a", "2")}, []since{{"2": at(20)}}},
		{40, []Node{on("a", "1"), on("b", "1")}, []since{{"1": at(40)}, {"1": at(40)}}},
		{50, []Node{noKMS("a")}, []since{{}}},
	} {
		if diff := cmp.Diff(step.want, observe(step.at, step.nodes...)); diff != "" {
			t.Errorf("after %d s: %s", step.at, diff)
		}
	}
}
