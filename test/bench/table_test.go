package bench

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// unbounded is a bound by which nothing is judged.
const unbounded = -1

// results are the lines of the table that a run prints at its end.
var results []string

// judge adds a value to the results, and fails the test if it is over its bound.
func judge[T int | int64 | float64 | time.Duration](f *fixture, what string, value, bound T, show func(T) string) {
	f.Helper()
	line := what + "\t" + show(value) + "\t"
	switch {
	case bound == unbounded:
		line += "-\t"
	case value <= bound:
		line += show(bound) + "\tok"
	default:
		line += show(bound) + "\tOVER"
		f.Errorf("over the bound: %s: %s, at most %s", what, show(value), show(bound))
	}
	results = append(results, line)
}

func printResults() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(results) > 0 {
		fmt.Fprintln(w, "WHAT\tMEASURED\tBOUND\t")
	}
	for _, line := range results {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
}

// megabytes are of 1,000,000 bytes.
func megabytes(bytes int64) string { return fmt.Sprintf("%.2f MB", float64(bytes)/1e6) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}

func times(ratio float64) string { return fmt.Sprintf("%.3fx", ratio) }

func number[T int | int64](n T) string { return fmt.Sprint(n) }
