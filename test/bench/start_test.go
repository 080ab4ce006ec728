package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	starts   = 100
	changes  = 30
	maxStart = 12 * time.Millisecond
	// maxChange is 5 ms more than the 25 ms that the reporter waits for an editor's next event.
	maxChange = 30 * time.Millisecond
)

// TestStart measures the time from a reporter's start, and from a change of its file, to the first Status call that a
// plugin receives. No API server runs. Builds take turns.
func TestStart(t *testing.T) {
	f := newFixture(t)
	var nodes []*node
	file := func(n *node, keyIDs ...int) string { return n.render(settings{interval: time.Hour, keyIDs: keyIDs}) }
	for i, build := range f.reporters() {
		n := f.newNode(fmt.Sprintf("start-%d", i), build, 2)
		n.configure(file(n, 1))
		nodes = append(nodes, n)
	}
	started, changed := make([][]time.Duration, len(nodes)), make([][]time.Duration, len(nodes))
	for round := range starts {
		for i := range nodes {
			i = (i + round) % len(nodes) // each build comes first equally often
			n := nodes[i]
			var p *process
			started[i] = append(started[i], n.untilStatus(1, func() { p = n.run() }))
			p.end()
		}
	}
	for _, n := range nodes {
		n.untilStatus(1, func() { n.run() })
	}
	f.pause(warmUp)
	for round := range changes {
		for i := range nodes {
			i = (i + round) % len(nodes)
			n := nodes[i]
			changed[i] = append(changed[i], n.untilStatus(2, func() { n.configure(file(n, 1, 2)) }))
		}
		for _, n := range nodes {
			n.configure(file(n, 1))
		}
		f.pause(time.Second)
	}
	f.medians("start to the first Status", started, maxStart)
	f.medians("change of the file to the first Status", changed, maxChange)
}

// untilStatus returns the time until a plugin receives its next Status call.
func (n *node) untilStatus(keyID int, cause func()) time.Duration {
	plugin := n.plugins[keyID-1]
	calls := plugin.Calls(kmsplugin.CallStatus).Count
	ctx, cancel := context.WithTimeout(running, waitLimit)
	defer cancel()
	began := time.Now()
	cause()
	n.must(plugin.WaitForCalls(ctx, kmsplugin.CallStatus, calls+1))
	return plugin.Calls(kmsplugin.CallStatus).Latest.Sub(began)
}

// medians judges the medians of a repeated measurement, by build.
func (f *fixture) medians(what string, took [][]time.Duration, bound time.Duration) {
	var figures []time.Duration
	for _, all := range took {
		f.Logf("%s: %v", what, all)
		figures = append(figures, median(all))
	}
	if len(figures) > 1 { // compared in the same run, because absolute times depend on the machine
		bound = unbounded
	}
	judge(f, fmt.Sprintf("%s, median of %d", what, len(took[0])), figures[0], bound, milliseconds)
	compare(f, what, figures)
}

// median returns the upper median.
func median[T cmp.Ordered](values []T) T { return slices.Sorted(slices.Values(values))[len(values)/2] }
