package reporter

import (
	"context"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// output writes messages to standard output, by --output. It holds one message, the
// latest: a slow reader misses some messages, and does not delay the loop.
type output struct {
	to       io.Writer
	lines    chan []byte
	failures prometheus.Counter
}

func newOutput(to io.Writer, failures prometheus.Counter) *output {
	return &output{to: to, lines: make(chan []byte, 1), failures: failures}
}

// line returns a message as a line that is safe to print to a terminal.
func line(message string) []byte { return append(contract.Printable(message), '\n') }

// offer replaces what was not written yet. Only the loop calls it.
func (o *output) offer(message string) {
	select {
	case <-o.lines:
	default:
	}
	o.lines <- line(message) // has room: only the loop sends
}

// run writes until ctx ends, and reports a failure when it begins and ends.
func (o *output) run(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-o.lines:
			_, err := o.to.Write(line)
			switch {
			case err == nil && failing:
				klog.InfoS("Writing to --output works again")
			case err != nil && !failing:
				klog.ErrorS(err, "Failed to write to --output; continuing without it")
			}
			if failing = err != nil; failing {
				o.failures.Inc()
			}
		}
	}
}
