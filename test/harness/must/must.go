// Package must ends a test whose preparation fails, and compares results.
package must

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Succeed ends the test with the places that led to the error, if there is one. So helpers of tests need no t.Helper,
// which shows only one of these places.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err, callers())
	}
}

// callers returns the places in test files that led to the call of Succeed, the nearest first.
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

// Equal reports an error if what is not as wanted.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}
