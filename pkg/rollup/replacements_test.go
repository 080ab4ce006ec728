package rollup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestAReplacementExcusesItsNodeForABoundedTime(t *testing.T) {
	r := Replacements{}
	for i, step := range []struct {
		after     time.Duration
		replacing bool
		want      map[string]time.Time
	}{
		{0, false, map[string]time.Time{}},
		{time.Minute, true, map[string]time.Time{"a": now.Add(6 * time.Minute)}},
		{time.Hour, true, map[string]time.Time{"a": now.Add(6 * time.Minute)}}, // stuck
		{2 * time.Hour, false, map[string]time.Time{}},
		{3 * time.Hour, true, map[string]time.Time{"a": now.Add(3*time.Hour + 5*time.Minute)}},
	} {
		got := r.QuietUntil([]operatorcr.NodeStatus{{Name: "a", Replacing: step.replacing}, {Name: "b"}}, now.Add(step.after))
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}
