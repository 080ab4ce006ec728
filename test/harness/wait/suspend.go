package wait

import (
	"time"
	"unsafe"
)

// Suspended is what time.Now returns d after t, all of which the machine was suspended for:
// CLOCK_REALTIME went on, and CLOCK_MONOTONIC stood still. No function of package time makes such a
// time, hence its fields (time.Time: wall, ext, loc; ext is the monotonic reading in nanoseconds).
func Suspended(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext -= int64(d)
	return t
}
