// Package trace ends a test with the places that led to an error. So helpers of tests need no t.Helper, which shows
// only one of these places.
package trace

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Must ends a test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err, callers())
	}
}

// callers returns the places in test files that led to the call of Must, the nearest first.
func callers() string {
	counters := make([]uintptr, 50)
	frames := runtime.CallersFrames(counters[:runtime.Callers(3, counters)])
	var b strings.Builder
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.HasSuffix(frame.File, "_test.go") {
			fmt.Fprintf(&b, "\n\tat %s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
	return b.String()
}
