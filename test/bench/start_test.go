package bench

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

var before = flag.String("before", "", "the absolute path of another build of the reporter, which starts in turn with this one")

const (
	starts   = 20
	maxStart = 12 * time.Millisecond
	// maxChange is five more than the 25 ms that the reporter waits for an editor's next event.
	maxChange = 30 * time.Millisecond
)

// TestStart measures how long it takes from the start of a reporter, and from a change of its
// file, to the first Status call that a plugin receives. No API server runs.
func TestStart(t *testing.T) {
	f := newFixture(t)
	programs := []string{f.program("kms-health-reporter")}
	if *before != "" {
		programs = append(programs, f.program(*before))
	}
	n := f.newNode("start", "", 2)
	file := func(keyIDs ...int) string { return n.render(settings{interval: time.Hour, keyIDs: keyIDs}) }
	n.configure(file(1))
	took := make([][]time.Duration, len(programs))
	for range starts {
		for i, program := range programs {
			n.binary = program
			var p *process
			took[i] = append(took[i], n.untilStatus(1, func() { p = n.run() }))
			p.end()
		}
	}
	n.binary = programs[0]
	n.untilStatus(1, func() { n.run() })
	f.pause(warmUp)
	var changes []time.Duration
	for range starts {
		changes = append(changes, n.untilStatus(2, func() { n.configure(file(1, 2)) }))
		n.configure(file(1))
		f.pause(time.Second)
	}
	f.median("start to the first Status", took[0], maxStart)
	if len(took) > 1 {
		f.median("  the same of the other build", took[1], unbounded)
	}
	f.median("change of the file to the first Status", changes, maxChange)
}

// untilStatus returns the time until a plugin receives its next Status call.
func (n *node) untilStatus(keyID int, cause func()) time.Duration {
	n.Helper()
	plugin := n.plugins[keyID-1]
	calls := plugin.Calls(kmsplugin.CallStatus).Count
	ctx, cancel := context.WithTimeout(running, waitLimit)
	defer cancel()
	began := time.Now()
	cause()
	n.must(plugin.WaitForCalls(ctx, kmsplugin.CallStatus, calls+1))
	return plugin.Calls(kmsplugin.CallStatus).Latest.Sub(began)
}

// median judges a measurement that was repeated.
func (f *fixture) median(what string, took []time.Duration, bound time.Duration) {
	f.Helper()
	slices.Sort(took)
	f.Logf("%s: %v", what, took)
	judge(f, fmt.Sprintf("%s, median of %d", what, len(took)), took[len(took)/2], bound, milliseconds)
}
