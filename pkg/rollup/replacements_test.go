package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestAReplacementExcusesItsNodeForABoundedTime(t *testing.T) {
	r := Replacements{}
	for i, step := range []struct {
		after     time.Duration
		replacing bool
		want      time.Time
	}{
		{0, false, time.Time{}},
		{time.Minute, true, now.Add(6 * time.Minute)},
		{time.Hour, true, now.Add(6 * time.Minute)}, // stuck
		{2 * time.Hour, false, time.Time{}},
		{3 * time.Hour, true, now.Add(3*time.Hour + 5*time.Minute)},
	} {
		nodes := []Node{{Name: "a"}, {Name: "b"}}
		r.Observe(nodes, []operatorcr.NodeStatus{{Name: "a", Replacing: step.replacing}, {Name: "b"}}, now.Add(step.after))
		if !nodes[0].QuietUntil.Equal(step.want) || !nodes[1].QuietUntil.IsZero() {
			t.Errorf("step %d: %+v", i, nodes)
		}
	}
}
