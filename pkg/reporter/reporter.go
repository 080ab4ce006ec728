// Package reporter joins the reporter's parts: it watches a file, probes the plugins that the file names, and
// publishes, prints and serves the results.
//
// One goroutine owns all state and never blocks on I/O: reading the file, probing, writing and serving each run in
// other goroutines. So a plugin that hangs, an API server that is down or a full disk delays nothing else.
//
// The last valid file stays active: an invalid or deleted file is logged, and changes nothing. Only an empty list of
// plugins turns probing off.
package reporter

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
	"github.com/kms-health/kms-health/pkg/serving"
)

const shutdown = 1500 * time.Millisecond // the longest wait for running operations at the end

// Options are set by flags and the environment; all other settings are in the file.
type Options struct {
	ConfigFile string            // its path
	Node       string            // empty: nothing is written to an operator resource
	PodUID     string            // of the reporter's pod, which reports name as their writer; empty: they name none
	StateFile  string            // the path of the file of kept samples; empty: samples end with the process
	ConfigHash string            // the v1alpha1.PluginSetHash that the pod was created for; empty: not compared
	UserAgent  string            // names the program to the API server
	Output     io.Writer         // gets a line for each report; nil: no output
	Metrics    *metrics.Registry // of contract.ReporterMetrics
}

// Reporter runs all parts of the program.
type Reporter struct {
	options Options
	metrics *metrics.Registry
	server  serve.Server
	output  *sink            // of reports; nil without --output
	samples *sink            // of the state file; nil without --state
	since   func() time.Time // when the process first tried to write
	running sync.WaitGroup

	outputProblem, samplesProblem serving.Problem // of the sinks

	// The fields below are used by the goroutine of Run only.
	config      *v1alpha1.ReporterConfiguration // active; nil before the first
	sum         string                          // SHA-256 of the active file, in hexadecimal
	mismatch    string                          // why it is not what the pod was created for; empty if it is
	configError string                          // why the current file is not active; empty if it is
	plugins     []*plugin
	publisher   *publish.Publisher // nil: nothing is written

	stopServing, stopWriting context.CancelFunc // end what runs by a former configuration

	state  *state           // as last read or saved
	events chan func()      // functions from other goroutines, which Run calls
	tick   <-chan time.Time // of the next round; nil: no plugins
	grace  <-chan time.Time // ends a round's wait for its last answers; nil: no round waits
}

// New returns a Reporter. It opens nothing yet.
func New(options Options) *Reporter {
	r := &Reporter{
		options:     options,
		metrics:     options.Metrics,
		events:      make(chan func()),
		configError: "not read yet",
		since:       sync.OnceValue(time.Now),
		stopServing: func() {},
		stopWriting: func() {},
	}
	r.metrics.Set(contract.MetricConfigExpected, 1)
	for _, result := range []string{reloadApplied, reloadInvalid, reloadUnreadable} {
		r.metrics.Add(contract.MetricReloads, 0, result) // a rate needs the zero before the one
	}
	r.server.Handler = r.handler()
	if options.Output != nil {
		r.output = newSink(r.writeOutput)
	}
	if options.StateFile != "" {
		r.samples = newSink(r.writeSamples)
	}
	return r
}

// Run reports until ctx ends, and then returns within two seconds. Nothing else ends it.
func (r *Reporter) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.state = &state{}
	if r.samples != nil {
		read := make(chan *state, 1)
		go func() { read <- loadState(r.options.StateFile, time.Now()) }()
		select {
		case r.state = <-read:
		case <-time.After(stateTimeout):
			klog.ErrorS(nil, "Kept samples cannot be read in time; beginning without them", "file", r.options.StateFile)
		}
		r.running.Go(func() { r.samples.run(ctx) })
	}
	r.running.Go(func() {
		filewatch.New(r.options.ConfigFile, v1alpha1.MaxFileSize).Run(ctx, func(c filewatch.Content) {
			r.do(ctx, func() { r.reload(ctx, c) })
		})
	})
	if r.output != nil {
		go r.output.run(ctx) // not waited for: stdout may never be read
	}
	for {
		select {
		case <-ctx.Done():
			r.finish()
			return
		case <-r.tick:
			r.probe(r.plugins)
			r.tick = time.After(jitter(r.config.Probe.Interval.Duration))
		case event := <-r.events:
			event()
		case <-r.grace:
			r.publish()
		}
	}
}

// do makes the loop of Run call event, unless ctx ends first.
func (r *Reporter) do(ctx context.Context, event func()) {
	select {
	case r.events <- func() {
		if ctx.Err() == nil {
			event()
		}
	}:
	case <-ctx.Done():
	}
}

// jitter varies an interval by up to a tenth either way, so that replicas that started at the same time do not write at
// the same time.
func jitter(interval time.Duration) time.Duration {
	return interval*9/10 + rand.N(interval/5+1)
}

// finish ends running operations, and waits for them for a bounded time.
func (r *Reporter) finish() {
	for _, p := range r.plugins {
		r.running.Go(p.conn.Close)
	}
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(shutdown):
		klog.InfoS("Exiting before all running operations have ended")
	}
}
