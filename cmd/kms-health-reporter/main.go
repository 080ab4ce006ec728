// kms-health-reporter runs on the node of an API server, probes the KMS plugins that a file names, and reports on them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/logging"
	"github.com/kms-health/kms-health/pkg/output"
	"github.com/kms-health/kms-health/pkg/reporter"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/version"
)

// The kernel delivers a signal to the main thread, also while that thread is blocked in a file system, where it is not
// handled. So the main thread does nothing but wait.
func init() { runtime.LockOSThread() }

func main() {
	code := make(chan int)
	go func() { code <- run(os.Args[1:], os.Stdout, os.Stderr) }()
	os.Exit(<-code)
}

func run(args []string, out, stderr io.Writer) (code int) {
	stdout := &output.Checked{Writer: out}
	o, err := parseFlags(args, os.Getenv)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(stdout, o.help())
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "error: %v\nSee kms-health-reporter --help.\n", err)
		return reporter.ExitUsage
	case o.version:
		_, _ = fmt.Fprintln(stdout, "kms-health-reporter version "+version.Text())
	case o.printDefaults:
		_, _ = stdout.Write(v1alpha1.ReporterSample)
	case o.validate:
		code = reporter.Validate(o.ConfigFile, os.Stdin, stdout, stderr)
	case o.once:
		code = reporter.Once(context.Background(), o.ConfigFile, os.Stdin, stdout, stderr)
	default:
		report(o, out, stderr) // it continues if its output fails
	}
	if code == reporter.ExitOK && stdout.Err != nil {
		_, _ = fmt.Fprintf(stderr, "error: standard output: %v\n", stdout.Err)
		return reporter.ExitUsage
	}
	return code
}

// afterStart reduces the CPU time and memory of the process, which is idle nearly all of the time. It stops the
// process for a moment, so it runs a second after the start: the first probe comes first.
func afterStart() {
	// With one processor it wakes fewer threads, which saves a quarter of its CPU time.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	// Its live heap is 1 MB, and by default Go collects at 4 MB. Collecting at 1.6 MB needs 1.5 MB less resident memory,
	// at one collection in some 8 rounds instead of 30.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
}

// report runs until a signal ends it.
func report(o *options, stdout, stderr io.Writer) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx := untilSignal(signals, os.Exit)
	// The process must not end when the reader of its output or its terminal closes, nor by a SIGHUP meant as a reload.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	log := logging.Start(stderr)
	klog.InfoS("Starting", "version", version.Version, "fips140", version.FIPS(), "config", o.ConfigFile, "node", o.Node,
		"podUID", o.PodUID, "pid", os.Getpid())
	time.AfterFunc(time.Second, afterStart)
	o.Metrics, o.UserAgent = metrics.New(contract.ReporterMetrics), "kms-health-reporter/"+version.Version
	o.Metrics.Set(contract.MetricReporterBuild, 1, version.LabelValues()...)
	o.Metrics.Set(contract.MetricReporter, 1, o.Node)
	if o.reports != "" {
		o.Output = stdout
	}
	reporter.New(o.Options).Run(ctx)
	klog.InfoS("Ended")
	log.Flush(flushTime)
}

const (
	hardEnd   = 2 * time.Second        // when the process exits after the first signal, even if something hangs
	flushTime = 250 * time.Millisecond // bounds the wait for the log's last lines to be read; Run takes at most 1.5 s
)

// untilSignal returns a context that ends at the first signal. The process exits, with ExitOK, at the second signal, or
// hardEnd after the first.
func untilSignal(signals <-chan os.Signal, exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		received := <-signals
		bound := time.NewTimer(hardEnd) // before anything that could take time
		cancel()
		klog.InfoS("Ending", "signal", received.String())
		select {
		case <-signals:
		case <-bound.C:
		}
		exit(reporter.ExitOK)
	}()
	return ctx
}
