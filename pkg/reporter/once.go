package reporter

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// Exit codes, as of the other programs.
const (
	ExitOK       = 0 // the file is valid; or every plugin of it, at least one, is healthy
	ExitNotOK    = 1 // the file has errors; or a plugin is known not to be healthy
	ExitNoAnswer = 2 // a plugin was not observed, and none is known not to be healthy
	ExitUsage    = 3 // the flags or the file cannot be used
)

// readConfig reads the configuration as the running reporter would, but also from standard input, and prints each error
// on a line of its own. If config is nil, exit is the exit code of Validate.
func readConfig(path string, stdin io.Reader, stderr io.Writer) (config *v1alpha1.ReporterConfiguration, exit int) {
	content := filewatch.ReadOnce(path, stdin, v1alpha1.MaxFileSize)
	if content.Err != nil { // it contains the path
		printErrors(stderr, "--config", content.Err.Error())
		return nil, ExitUsage
	}
	config, err := v1alpha1.DecodeReporter(content.Data)
	if err != nil {
		printErrors(stderr, path, strings.Split(err.Error(), "\n")...)
	}
	return config, ExitNotOK
}

func printErrors(stderr io.Writer, path string, lines ...string) {
	for _, line := range lines {
		_, _ = fmt.Fprintf(stderr, "error: %s: %s\n", filewatch.Shown(path), line)
	}
}

// Validate checks the file at path, and prints it with its defaults, or every error on a line of its own.
func Validate(path string, stdin io.Reader, stdout, stderr io.Writer) int {
	config, exit := readConfig(path, stdin, stderr)
	if config == nil {
		return exit
	}
	effective, _ := yaml.Marshal(config) // it was read from YAML
	_, _ = fmt.Fprintf(stdout, "ok\n---\n%s", effective)
	return ExitOK
}

// Once probes every plugin of the file at path one time, with a round trip unless that is off, and
// prints their entries as JSON. Plugins without an entry are listed on stderr, with the reason.
func Once(ctx context.Context, path string, stdin io.Reader, stdout, stderr io.Writer) int {
	config, _ := readConfig(path, stdin, stderr)
	if config == nil {
		return ExitUsage
	}
	entries, unobserved := once(ctx, config)
	message, err := contract.EncodeMessage(entries)
	if err == nil {
		_, err = stdout.Write(line(message))
	}
	if err != nil {
		unobserved = append(unobserved, err.Error())
	}
	printErrors(stderr, path, unobserved...)
	switch {
	case slices.ContainsFunc(entries, func(e contract.Entry) bool { return e.Status != contract.Healthy }):
		return ExitNotOK
	case len(unobserved) > 0:
		return ExitNoAnswer
	}
	return ExitOK
}

// once probes all plugins at the same time, and returns their entries in the order of a report. A plugin with nothing
// to observe, or that the reporter could not probe, has no entry. While round trips are on, a plugin is healthy only
// after a successful one. If this process runs, once takes at most 24 times the longest timeout, or a second.
func once(ctx context.Context, config *v1alpha1.ReporterConfiguration) (entries []contract.Entry, unobserved []string) {
	var plugins []*plugin
	var probes sync.WaitGroup
	for _, w := range want(config) {
		p := &plugin{wanted: w, conn: probe.NewPlugin(w.address)}
		plugins = append(plugins, p)
		probes.Go(func() {
			defer p.conn.Close()
			p.once(ctx, config.Probe)
		})
	}
	probes.Wait()
	if len(plugins) == 0 {
		return nil, []string{"no plugin was observed: the list of plugins is empty"}
	}
	for _, p := range plugins {
		if !p.observed {
			unobserved = append(unobserved, fmt.Sprintf("plugin %q was not observed: %s: %s", p.keyID, p.address,
				p.last.NotProbed+p.last.Detail))
		}
	}
	return entriesOf(plugins), unobserved
}

// once probes a plugin and makes a round trip, until there is an entry: round trips that cannot be made are an error.
func (p *plugin) once(ctx context.Context, c v1alpha1.Probe) {
	for !p.judged() {
		p.last = p.conn.Probe(ctx, p.settings)
		if p.last.NotProbed != "" {
			return
		}
		p.trips.observe(time.Now(), c.Interval.Duration, p.last)
		if p.last.Answered && c.Checks.RoundTrip.Interval.Duration != 0 {
			p.trips.begin(time.Now(), p.last)
			trip := p.conn.RoundTrip(ctx, p.settings, p.last.KEKID, nil)
			p.trips.end(time.Now(), c.Interval.Duration, trip)
		}
		p.judge(time.Now(), c)
	}
}
