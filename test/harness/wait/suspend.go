package wait

import (
	"time"
	"unsafe"
)

// Suspended returns the result of time.Now after the machine was suspended for d since t: CLOCK_REALTIME has advanced,
// CLOCK_MONOTONIC has not. No function of package time creates such a time, so Suspended changes the fields of
// time.Time (wall, ext, loc; ext is the monotonic reading in nanoseconds).
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
