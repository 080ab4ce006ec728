package bench

import (
	"cmp"
	"fmt"
	"io"
	"strings"
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

// results are those of a run.
var results []row

// add fails the test if the value is over its bound.
func (f *fixture) add(r row) {
	f.Helper()
	results = append(results, r)
	if r.verdict == over {
		f.Errorf("over the bound: %s: %s, at most %s", strings.TrimSpace(r.what), cmp.Or(r.value, r.measured), r.bound)
	}
}

func printResults(out io.Writer) error {
	if len(results) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tFLOOR\tRATIO OR VALUE\tBOUND\t")
	for _, r := range results {
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
