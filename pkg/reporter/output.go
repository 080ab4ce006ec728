package reporter

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// output writes messages to where --output points. It holds one message, the
// latest: a reader that does not keep up misses some, and delays nobody.
type output struct {
	write    func(line []byte) error
	lines    chan []byte
	failures prometheus.Counter
}

// newOutput returns an output to a writer, or to a file that is replaced whole
// by each message.
func newOutput(stdout io.Writer, path string, failures prometheus.Counter) *output {
	o := &output{lines: make(chan []byte, 1), failures: failures}
	if path == "-" {
		o.write = func(line []byte) error { _, err := stdout.Write(line); return err }
	} else {
		o.write = func(line []byte) error { return replaceFile(path, line) }
	}
	return o
}

// offer replaces what was not written yet. Only the loop calls it.
func (o *output) offer(message string) {
	select {
	case <-o.lines:
	default:
	}
	o.lines <- []byte(message + "\n") // has room: the loop alone puts in
}

// run writes until ctx ends, and reports a failure when it begins and ends.
func (o *output) run(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-o.lines:
			err := o.write(line)
			if err != nil {
				o.failures.Inc()
			}
			if (err != nil) == failing {
				continue
			}
			failing = err != nil
			if failing {
				klog.ErrorS(err, "Cannot write to --output; going on without")
			} else {
				klog.InfoS("Writing to --output works again")
			}
		}
	}
}

// replaceFile writes a new file beside the old one and renames it over, so that
// a reader sees either whole.
func replaceFile(path string, data []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the link stays, what it leads to is replaced
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file (mode %s), and is not replaced", path, info.Mode())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to tell
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}
