// kms-health-reporter runs beside an API server, probes the KMS plugins that one
// file names, and reports on them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/reporter"
)

// Exit codes. A running reporter ends with 0 on SIGTERM or SIGINT, and otherwise
// not at all.
const (
	exitOK    = 0
	exitIll   = 1 // --validate: mistakes; --once: a plugin is not healthy
	exitUsage = 2 // flags that cannot be parsed; --once: nothing could be told
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, os.Getenv)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(stdout, o.help)
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "kms-health-reporter: %v\nSee kms-health-reporter --help.\n", err)
		return exitUsage
	}
	switch {
	case o.version:
		_, _ = fmt.Fprintln(stdout, versionLine())
		return exitOK
	case o.printDefaults:
		_, _ = stdout.Write(v1alpha1.ReporterSample)
		return exitOK
	case o.validate:
		return validate(o.config, stdout, stderr)
	case o.once:
		return once(context.Background(), o.config, stdout, stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Whoever reads our output, or gave us a terminal, may go; and a SIGHUP by
	// those who think that it reloads must not end us. That is all no reason.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	// It waits for others nearly all of the time, and should be as small on a
	// host of many processors.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	}
	klog.InfoS("Starting", "version", version, "config", o.config, "node", o.node, "pid", os.Getpid())
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	reporter.New(reporter.Options{
		ConfigFile: o.config,
		Node:       o.node,
		Output:     o.output,
		Stdout:     stdout,
		ConfigHash: os.Getenv(hashVariable),
		UserAgent:  "kms-health-reporter/" + version,
		Registry:   registry,
	}).Run(ctx)
	klog.InfoS("Ended")
	klog.Flush()
	return exitOK
}
