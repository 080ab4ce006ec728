package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBoundMayBeReachedAndNotPassed(t *testing.T) {
	for _, tt := range []struct {
		value, bound time.Duration
		want         verdict
	}{{1, 2, ok}, {2, 2, ok}, {3, 2, over}} {
		if got := atMost(tt.value, tt.bound); got != tt.want {
			t.Errorf("%d of at most %d is %s, want %s", tt.value, tt.bound, got, tt.want)
		}
	}
}

func TestTableShowsEveryRowAndNamesWhatIsOver(t *testing.T) {
	var all table
	all.add(row{what: "size", measured: megabytes(22_000_000), bound: "20 MB", verdict: over})
	all.add(row{what: "start", measured: milliseconds(12_345_678), verdict: told})
	all.add(row{what: "CPU", measured: perCycle(400_400), floor: "0.300 ms", value: "1.33x", bound: "1.5x", verdict: ok})
	if got, want := all.exceeded(), []string{"size"}; !slices.Equal(got, want) {
		t.Errorf("exceeded: %v, want %v", got, want)
	}
	var text strings.Builder
	if err := all.print(&text); err != nil {
		t.Fatal(err)
	}
	const want = `WHAT   MEASURED  FLOOR     RATIO OR VALUE  BOUND  
size   22.00 MB  -         -               20 MB  OVER
start  12.3 ms   -         -               -      
CPU    0.400 ms  0.300 ms  1.33x           1.5x   ok
`
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
