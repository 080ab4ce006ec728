package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	lost = "Unknown ReportsMissing"
	long = 3600 // seconds, longer ago than FirstReport
)

// awaited returns a node without a report, whose first report is due in some seconds.
func awaited(seconds int) Node {
	n := on("a", "2")
	n.Due = in(seconds)
	return n
}

func TestPluginThatIsNotReportedIsUnknownWhenItsReportIsDue(t *testing.T) {
	unknownKeys := on("a")
	unknownKeys.Due = ago(long)
	for name, tt := range map[string]struct {
		node                Node
		degraded, reporting string
		deadline            time.Time // zero: none
	}{
		"before":                    {awaited(1), awaiting, missing, in(1)},
		"from then on":              {awaited(0), lost, "False ReportsMissing", time.Time{}},
		"its plugins are not known": {unknownKeys, lost, "False ReportsMissing", time.Time{}},
		"its API server crashes, and is restarted again and again": {with(awaited(-long), replacing(60)), lost,
			"False ReportsMissing", time.Time{}},
		"excused: its Node is not Ready": {with(awaited(-long), down), fine, lost, in(1800)},
	} {
		got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: []Node{tt.node}})
		if reporting := got.is(contract.HealthReporting); got.degraded() != tt.degraded || reporting != tt.reporting ||
			!got.Deadline.Equal(tt.deadline) {
			t.Errorf("%s: %s, %s until %s, want %+v", name, got.degraded(), reporting, got.Deadline, tt)
		}
	}
}

// One plugin of a node can be missing while others are reported.
func TestPluginThatIsMissingInAReportIsUnknownWhenItIsDue(t *testing.T) {
	n := on("a", "2", "1")
	n.Due = in(1)
	in := Input{Now: now, Nodes: []Node{n}, Reports: a(every(3600, fresh))}
	got := Evaluate(&in)
	if got.degraded() != awaiting || !got.Deadline.Equal(ago(-1)) {
		t.Errorf("%s until %s", got.degraded(), got.Deadline)
	}
	in.Now = got.Deadline
	got = Evaluate(&in)
	if message := got.Conditions[contract.PluginsDegraded].Message; got.degraded() != lost ||
		message != "key 1 on node a: not reported yet" {
		t.Errorf("%s: %s", got.degraded(), message)
	}
}
