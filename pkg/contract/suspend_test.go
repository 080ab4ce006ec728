package contract

import (
	"testing"
	"time"
	"unsafe"
)

// afterSuspend is what time.Now returns d after t, all of which the machine was
// suspended for: CLOCK_REALTIME went on, and CLOCK_MONOTONIC stood still. No
// function of package time makes such a time, hence its fields (time.Time: wall,
// ext, loc; ext is the monotonic reading in nanoseconds).
func afterSuspend(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext -= int64(d)
	return t
}

func TestFreshnessIsByTheWallClockAfterASuspend(t *testing.T) {
	checked := time.Now()
	for name, tt := range map[string]struct {
		checked, now time.Time
		want         freshness
	}{
		"not suspended":                       {checked, checked.Add(StaleIntervals * time.Second), fresh},
		"suspended until the last instant":    {checked, afterSuspend(checked, StaleIntervals*time.Second), fresh},
		"suspended for longer":                {checked, afterSuspend(checked, StaleIntervals*time.Second+1), stale},
		"suspended for an hour":               {checked, afterSuspend(checked, time.Hour), stale},
		"suspended, the entry from a message": {checked.Round(0), afterSuspend(checked, time.Hour), stale},
		"the wall clock was set back":         {checked, afterSuspend(checked, -time.Hour), skewed},
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
