package contract

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

func TestFreshnessIsByTheWallClockAfterASuspend(t *testing.T) {
	checked := time.Now()
	for name, tt := range map[string]struct {
		checked, now time.Time
		want         freshness
	}{
		"not suspended":                       {checked, checked.Add(StaleIntervals * time.Second), fresh},
		"suspended until the last instant":    {checked, wait.Suspended(checked, StaleIntervals*time.Second), fresh},
		"suspended for longer":                {checked, wait.Suspended(checked, StaleIntervals*time.Second+1), stale},
		"suspended for an hour":               {checked, wait.Suspended(checked, time.Hour), stale},
		"suspended, the entry from a message": {checked.Round(0), wait.Suspended(checked, time.Hour), stale},
		"the wall clock was set back":         {checked, wait.Suspended(checked, -time.Hour), skewed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.now.Sub(checked); tt.want != fresh && got != 0 {
				t.Fatalf("the monotonic clock advanced by %s", got)
			}
			if got := (Entry{LastChecked: tt.checked, Interval: time.Second}).freshness(tt.now); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
