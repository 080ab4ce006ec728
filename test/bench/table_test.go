package bench

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// unbounded means that a value has no bound.
const unbounded = -1

// results are the lines of the table that a run prints at its end.
var results []string

// judge adds a value to the results, and fails the test if it is over its bound.
func judge[T int | int64 | float64 | time.Duration](f *fixture, what string, value, bound T, show func(T) string) {
	if bound == unbounded {
		results = append(results, what+"\t"+show(value)+"\t-\t")
		return
	}
	f.row(what, show(value), "at most "+show(bound), value <= bound)
}

// judgeEqual is judge for a ratio that must be 1, within a tolerance.
func judgeEqual(f *fixture, what string, ratio, tolerance float64) {
	f.row(what, times(ratio), times(1-tolerance)+" to "+times(1+tolerance), ratio >= 1-tolerance && ratio <= 1+tolerance)
}

func (f *fixture) row(what, value, bound string, pass bool) {
	outcome := "PASS"
	if !pass {
		outcome = "FAIL"
		f.Errorf("out of its bound: %s: %s, must be %s", what, value, bound)
	}
	results = append(results, what+"\t"+value+"\t"+bound+"\t"+outcome)
}

// compare judges this build's figure by the other build's. Greater figures are worse.
func compare[T int64 | time.Duration](f *fixture, what string, figures []T) {
	if len(figures) > 1 {
		judge(f, "  "+what+", times the base's", float64(figures[0])/float64(figures[1]), maxWorse, times)
	}
}

func printResults() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(results) > 0 {
		fmt.Fprintln(w, "WHAT\tMEASURED\tMUST BE\t")
	}
	for _, line := range results {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
}

// megabytes formats bytes in MB of 1,000,000 bytes.
func megabytes(bytes int64) string { return fmt.Sprintf("%.2f MB", float64(bytes)/1e6) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func times(ratio float64) string { return fmt.Sprintf("%.3fx", ratio) }

func number[T int | int64](n T) string { return fmt.Sprint(n) }
