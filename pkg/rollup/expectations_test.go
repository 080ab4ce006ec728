package rollup

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

const (
	lost = "Unknown ReportsMissing"
	long = 3600 // seconds, longer ago than FirstReport
)

// awaited returns a node without a report, whose first report is due in some seconds.
func awaited(seconds int) Node {
	n := on("a", "2")
	n.Due["2"] = in(seconds)
	return n
}

func unknownKeys() Node {
	n := on("a")
	n.Due[""] = ago(long)
	return n
}

func TestPluginThatIsNotReportedIsUnknownWhenItsReportIsDue(t *testing.T) {
	for _, tt := range []struct {
		name     string
		node     Node
		want     string
		deadline time.Time // zero: none
	}{
		{"before", awaited(1), awaiting, in(1)},
		{"from then on", awaited(0), lost, time.Time{}},
		{"its plugins are not known", unknownKeys(), lost, time.Time{}},
		{"its API server crashes, and is restarted again and again", replacing(60, awaited(-long)), lost, time.Time{}},
		{"excused: its Node is not Ready", down(awaited(-long)), fine, in(1800)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: []Node{tt.node}})
			c := got.Conditions[contract.PluginsDegraded]
			if have := c.Status + " " + c.Reason; have != tt.want {
				t.Errorf("%s, want %s", have, tt.want)
			}
			if !got.Deadline.Equal(tt.deadline) {
				t.Errorf("evaluated again in %s, want in %s", got.Deadline.Sub(now), tt.deadline.Sub(now))
			}
			reporting := operatorstatus.Unknown + " " + contract.Progressing
			switch {
			case tt.want == lost:
				reporting = operatorstatus.False + " " + contract.ReportsMissing
			case strings.HasPrefix(tt.name, "excused"):
				reporting = lost
			}
			if c := got.Conditions[contract.HealthReporting]; c.Status+" "+c.Reason != reporting {
				t.Errorf("%+v, want %s", c, reporting)
			}
		})
	}
}

// One plugin of a node can be missing while others are reported.
func TestPluginThatIsMissingInAReportIsUnknownWhenItIsDue(t *testing.T) {
	n := on("a", "2", "1")
	n.Due["1"] = in(1)
	in := Input{Now: now, Nodes: []Node{n}, Reports: list{from("a", every(3600, healthy("2", 5)))}}
	got := Evaluate(&in)
	if c := got.Conditions[contract.PluginsDegraded]; c.Status+" "+c.Reason != awaiting || !got.Deadline.Equal(ago(-1)) {
		t.Errorf("%+v until %s", c, got.Deadline)
	}
	in.Now = got.Deadline
	if c := Evaluate(&in).Conditions[contract.PluginsDegraded]; c.Status+" "+c.Reason != lost ||
		c.Message != "key 1 on node a: not reported yet" {
		t.Errorf("%+v", c)
	}
}
