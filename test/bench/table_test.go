package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// row is one line of the result. Only what has a bound is judged.
type row struct {
	what     string
	measured string
	floor    string // of the same, by the program that does the minimum
	value    string // what the bound is about, if it is not what was measured
	bound    string
	verdict  verdict
}

type verdict string

const (
	notJudged verdict = "n/a" // the run was too short
	ok        verdict = "ok"
	over      verdict = "OVER"
)

// atMost judges a value by a bound that it may reach.
func atMost[T int | int64 | float64 | time.Duration](value, bound T) verdict {
	if value <= bound {
		return ok
	}
	return over
}

// table collects the results of a run.
type table struct{ rows []row }

// add fails the test if the value is over its bound.
func (t *table) add(tb testing.TB, r row) {
	tb.Helper()
	t.rows = append(t.rows, r)
	if r.verdict == over {
		tb.Errorf("over the bound: %s: %s, at most %s", strings.TrimSpace(r.what), cmp.Or(r.value, r.measured), r.bound)
	}
}

func (t *table) print(out io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tFLOOR\tRATIO OR VALUE\tBOUND\t")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.measured, cmp.Or(r.floor, "-"), cmp.Or(r.value, "-"), cmp.Or(r.bound, "-"), r.verdict)
	}
	return w.Flush()
}

// megabytes are of 1,000,000 bytes, as the bounds are.
func megabytes[T int64 | float64](bytes T) string { return fmt.Sprintf("%.2f MB", float64(bytes)/1e6) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// perCycle is precise enough to compare floors.
func perCycle(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// median returns the middle of a list in order, the lower of the two of an even
// number, so that it is a value that was measured. The list is not empty.
func median[T cmp.Ordered](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}

func TestMedianIsTheMiddle(t *testing.T) {
	for name, tt := range map[string]struct {
		list []int
		want int
	}{
		"one":               {[]int{7}, 7},
		"odd, out of order": {[]int{9, 1, 5}, 5},
		"even":              {[]int{4, 1, 3, 2}, 2},
		"an outlier":        {[]int{1, 1, 1, 1000}, 1},
	} {
		before := slices.Clone(tt.list)
		if got := median(tt.list); got != tt.want || !slices.Equal(before, tt.list) {
			t.Errorf("%s: median(%v) = %d, want %d; the list is %v now", name, before, got, tt.want, tt.list)
		}
	}
}

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

// failures counts what a test would fail of.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestTableShowsEveryRowAndFailsForWhatIsOver(t *testing.T) {
	var all table
	var failed failures
	all.add(&failed, row{what: "size", measured: megabytes(22e6), bound: "20 MB", verdict: over})
	all.add(t, row{what: "start", measured: milliseconds(12_345_678)})
	all.add(t, row{what: "CPU", measured: perCycle(400_400), floor: "0.300 ms", value: "1.33x", bound: "1.5x", verdict: ok})
	if failed.n != 1 {
		t.Errorf("%d failures, want 1", failed.n)
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
