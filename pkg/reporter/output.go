package reporter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

// output writes messages to the destination of --output. It holds one message, the
// latest: a slow reader misses some messages, and does not delay the loop.
type output struct {
	write    func(line []byte) error
	lines    chan []byte
	failures prometheus.Counter
}

// newOutput returns an output to a writer, or to a file that each message replaces
// atomically. config is the path of the configuration file, which it never
// replaces.
func newOutput(stdout io.Writer, path, config string, failures prometheus.Counter) *output {
	o := &output{lines: make(chan []byte, 1), failures: failures}
	if path == "-" {
		o.write = func(line []byte) error { _, err := stdout.Write(line); return err }
	} else {
		o.write = func(line []byte) error { return replaceFile(path, config, line) }
	}
	return o
}

// Line returns a message as a line that is safe to print to a terminal.
func Line(message string) []byte { return append(health.Printable(message), '\n') }

// offer replaces what was not written yet. Only the loop calls it.
func (o *output) offer(message string) {
	select {
	case <-o.lines:
	default:
	}
	o.lines <- Line(message) // has room: only the loop sends
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
				klog.ErrorS(err, "Failed to write to --output; continuing without it")
			} else {
				klog.InfoS("Writing to --output works again")
			}
		}
	}
}

// replaceFile writes a new file beside the old one and renames it over, so that a
// reader sees either whole. A link stays: what it leads to is replaced.
func replaceFile(path, config string, data []byte) error {
	path, err := replaceable(path, config)
	if err != nil {
		return err
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
		_ = os.Remove(f.Name()) // the first error is the one to report
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// replaceable returns the file that path leads to, if a report may replace it: it does
// not exist, or is a regular file that is empty or holds a report. Any other file, such
// as the configuration or credentials, must not be replaced.
func replaceable(path, config string) (string, error) {
	if SameFile(path, config) {
		return "", fmt.Errorf("%s is the configuration file, %s, and is not replaced", path, config)
	}
	file, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("%s is a symbolic link that leads nowhere, and is not replaced", path)
		}
		return path, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file (mode %s), and is not replaced", file, info.Mode())
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	first := make([]byte, 1)
	if n, err := f.Read(first); n == 1 && first[0] != '[' {
		return "", fmt.Errorf("%s does not hold a report (its first byte is %q), and is not replaced", file, first)
	} else if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return file, nil
}

// SameFile reports whether two paths lead to the same file, also through links, or will
// once a missing one is created.
func SameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	return location(a) == location(b)
}

// location is the file that a path leads to, which need not exist yet.
func location(path string) string {
	for range 40 { // as many links as Linux follows, path_resolution(7)
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}
