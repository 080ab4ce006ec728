package rollupcontroller

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// What was applied counts until the watch shows that version, or a later one: what
// is there then is what counts, be it somebody else's.
func TestWhatWasAppliedCountsUntilTheWatchIsThere(t *testing.T) {
	ours := map[string]rollup.Condition{rollup.Degraded: {Type: rollup.Degraded, Status: rollup.True}}
	other := map[string]rollup.Condition{rollup.Degraded: {Type: rollup.Degraded, Status: rollup.False}}
	for name, tt := range map[string]struct {
		shown, applied string
		age            time.Duration
		want           string
	}{
		"the watch is behind":                   {"99", "100", 10 * time.Second, rollup.True},
		"it is behind for very long":            {"99", "100", longest + 1, rollup.False},
		"it is there, and somebody else was":    {"100", "100", 0, rollup.False},
		"it is past it":                         {"101", "100", 0, rollup.False},
		"versions are numbers, not words":       {"9", "10", time.Second, rollup.True},
		"nothing tells versions":                {"", "", time.Second, rollup.True},
		"nothing tells versions, and it is old": {"", "", lag + 1, rollup.False},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			c := &Controller{again: now.Add(time.Hour), written: map[string]written{"a": {conditions: ours, version: tt.applied, at: now.Add(-tt.age)}}}
			got := c.standing("a", &rollup.Resource{Version: tt.shown, Conditions: other}, now)
			if got[rollup.Degraded].Status != tt.want {
				t.Errorf("%+v", got)
			}
			if _, kept := c.written["a"]; kept != (tt.want == rollup.True) {
				t.Errorf("kept: %v", kept)
			}
		})
	}
}
