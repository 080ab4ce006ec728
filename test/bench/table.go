package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// row is one line of the result. Only what has a bound is judged.
type row struct {
	what     string
	measured string
	floor    string // of the same, by the program that does the least
	value    string // what the bound is about, if it is not what was measured
	bound    string
	verdict  verdict
}

type verdict string

const (
	told      verdict = ""     // there is no bound on it
	notJudged verdict = "n/a"  // the run was too short to tell
	ok        verdict = "ok"   // within the bound
	over      verdict = "OVER" // not
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

func (t *table) add(r row) { t.rows = append(t.rows, r) }

// exceeded returns what is over its bound.
func (t *table) exceeded() []string {
	var list []string
	for _, r := range t.rows {
		if r.verdict == over {
			list = append(list, r.what)
		}
	}
	return list
}

func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tFLOOR\tRATIO OR VALUE\tBOUND\t")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.measured, orDash(r.floor), orDash(r.value), orDash(r.bound), r.verdict)
	}
	return w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// megabytes are of 1,000,000 bytes, as the bounds are.
func megabytes(bytes int64) string { return fmt.Sprintf("%.2f MB", float64(bytes)/1e6) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// perCycle is precise enough to tell floors apart.
func perCycle(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}
