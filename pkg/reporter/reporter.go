package reporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
)

const (
	// grace is how long the first answers of a round wait for the others, so
	// that a round is one write. A plugin that hangs holds up nobody for longer.
	grace = 250 * time.Millisecond

	// shutdown bounds the wait for what is under way when the reporter ends.
	shutdown = 1500 * time.Millisecond
)

// Options are what a Reporter is told by flags; all else is in the file.
type Options struct {
	// ConfigFile is the path of the file.
	ConfigFile string
	// Node is the name of the node, without which nothing can be written to an
	// operator resource.
	Node string
	// Output is "-" for Stdout, the path of a file, or empty.
	Output string
	Stdout io.Writer
	// UserAgent names the program to the API server.
	UserAgent string
	// Registry takes the metrics, and is what /metrics shows.
	Registry *prometheus.Registry
}

// Reporter is the running whole.
type Reporter struct {
	options Options
	metrics *metrics
	watcher *filewatch.Watcher
	server  *serve.Server
	output  *output // nil without --output
	view    atomic.Pointer[serve.View]

	publishMetrics *publish.Metrics
	since          func() time.Time // when the process first wrote
	publishers     []*publish.Publisher
	stopPublishers context.CancelFunc
	running        sync.WaitGroup

	// All below belongs to the goroutine of Run.
	config    *v1alpha1.ReporterConfiguration // in force; nil before the first
	sum       string                          // of the file that it came from
	complaint string                          // why the file as it is now is not in force
	deaf      bool                            // the watcher gets no events
	targets   []*target
	answers   chan answer
	waiting   int // probes under way, of targets not dropped
	tick      *time.Timer
	hurry     *time.Timer // runs while a round waits for its last answers
	hurrying  bool
}

// answer is the result of one probe.
type answer struct {
	target *target
	result probe.Result
}

// New returns a Reporter. It opens nothing yet.
func New(options Options) *Reporter {
	r := &Reporter{
		options: options,
		watcher: filewatch.New(options.ConfigFile, filewatch.Options{MaxSize: v1alpha1.MaxFileSize}),
		answers: make(chan answer),
		tick:    stoppedTimer(),
		hurry:   stoppedTimer(),
		since:   sync.OnceValue(time.Now),
	}
	r.metrics = newMetrics(options.Registry, func() float64 {
		if watching, _ := r.watcher.Watching(); watching {
			return 1
		}
		return 0
	})
	r.publishMetrics = publish.NewMetrics(options.Registry)
	r.server = serve.New(func() serve.View { return *r.view.Load() }, options.Registry)
	if options.Output != "" {
		r.output = newOutput(options.Stdout, options.Output, r.metrics.outputErrors)
	}
	r.show()
	return r
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// Run reports until ctx ends, and then returns within two seconds. Nothing else
// ends it.
func (r *Reporter) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	contents := make(chan filewatch.Content)
	r.running.Go(func() {
		r.watcher.Run(ctx, func(c filewatch.Content) {
			select {
			case contents <- c:
			case <-ctx.Done():
			}
		})
	})
	r.running.Go(func() { r.server.Run(ctx) })
	if r.output != nil {
		go r.output.run(ctx) // not waited for: nobody may be reading our stdout
	}
	for {
		select {
		case <-ctx.Done():
			r.finish()
			return
		case c := <-contents:
			r.reload(ctx, c)
		case <-r.tick.C:
			r.checkWatch()
			r.probe(ctx, r.targets)
			r.tick.Reset(jitter(r.config.Probe.Interval.Duration))
		case a := <-r.answers:
			r.observe(a)
		case <-r.hurry.C:
			r.publish()
		}
	}
}

// jitter varies an interval by up to a tenth either way, so that replicas that
// started together do not write together.
func jitter(interval time.Duration) time.Duration {
	return interval*9/10 + rand.N(interval/5+1)
}

// finish waits for what is under way, for a bounded time.
func (r *Reporter) finish() {
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	bound := time.NewTimer(shutdown)
	defer bound.Stop()
	select {
	case <-done:
		for _, t := range r.targets {
			t.plugin.Close() // no probe is under way any more
		}
	case <-bound.C:
		klog.InfoS("Ending although not everything under way has ended")
	}
}

// reload considers the file as it is now.
func (r *Reporter) reload(ctx context.Context, c filewatch.Content) {
	if c.Err != nil {
		r.complain(reloadUnreadable, c.Err)
		return
	}
	config, err := v1alpha1.DecodeReporter(c.Data)
	if err != nil {
		r.complain(reloadInvalid, err)
		return
	}
	sum := sha256.Sum256(c.Data)
	r.complaint = ""
	r.sum = hex.EncodeToString(sum[:])
	r.metrics.reloads.WithLabelValues(reloadApplied).Inc()
	r.metrics.configGood.Set(1)
	r.metrics.configSince.SetToCurrentTime()
	r.metrics.configInfo.Reset()
	r.metrics.configInfo.WithLabelValues(r.sum).Set(1)
	klog.InfoS("Configuration in force", "file", r.options.ConfigFile, "sha256", r.sum, "plugins", len(config.Plugins), "interval", config.Probe.Interval.Duration)
	r.apply(ctx, config)
}

// complain keeps what is in force, and says why.
func (r *Reporter) complain(result string, err error) {
	r.metrics.reloads.WithLabelValues(result).Inc()
	r.metrics.configGood.Set(0)
	r.complaint = err.Error()
	switch {
	case r.config != nil:
		klog.ErrorS(err, "Configuration file cannot be used; the last good one stays in force", "file", r.options.ConfigFile, "sha256", r.sum)
	case errors.Is(err, fs.ErrNotExist):
		klog.InfoS("No configuration file yet; waiting for it", "file", r.options.ConfigFile)
	default:
		klog.ErrorS(err, "Configuration file cannot be used; waiting for a good one", "file", r.options.ConfigFile)
	}
	r.show()
}

// apply puts a configuration in force. What did not change goes on undisturbed.
func (r *Reporter) apply(ctx context.Context, config *v1alpha1.ReporterConfiguration) {
	before := r.config
	r.config = config
	targets, added, leftOver := arrange(r.targets, want(config), func(w wanted) *target {
		t := &target{identity: w.identity, settings: w.settings, plugin: probe.NewPlugin(w.address)}
		t.ctx, t.cancel = context.WithCancel(ctx)
		return t
	})
	r.targets = targets
	for _, t := range leftOver {
		if t.busy {
			r.waiting--
		}
		t.close()
		r.metrics.forget(t.keyID)
	}
	r.server.Apply(config.Serving)
	if before == nil || !reflect.DeepEqual(before.Destination, config.Destination) {
		r.direct(ctx, config.Destination)
	}
	switch {
	case len(targets) == 0:
		r.tick.Stop()
	case before == nil || len(before.Plugins) == 0 || before.Probe.Interval != config.Probe.Interval:
		r.tick.Reset(jitter(config.Probe.Interval.Duration))
	}
	r.probe(ctx, added)
	if r.waiting == 0 {
		r.publish()
	} else {
		r.show()
	}
}

// direct starts publishers for a destination, in place of those there were.
func (r *Reporter) direct(ctx context.Context, d *v1alpha1.Destination) {
	if r.stopPublishers != nil {
		r.stopPublishers()
		r.publishers, r.stopPublishers = nil, nil
	}
	if d == nil {
		return
	}
	if r.options.Node == "" {
		klog.ErrorS(nil, "A destination is configured, but the node has no name: nothing is written. Set --node-name or KMS_HEALTH_NODE", "resource", d.Resource)
		return
	}
	ctx, r.stopPublishers = context.WithCancel(ctx)
	forms := map[v1alpha1.Format][]publish.Form{
		v1alpha1.FormatCondition:     {publish.Condition},
		v1alpha1.FormatHealthReports: {publish.HealthReports},
		v1alpha1.FormatBoth:          {publish.Condition, publish.HealthReports},
	}[d.Format]
	for _, form := range forms {
		p := publish.New(publish.Config{
			Form:       form,
			Resource:   string(d.Resource),
			Node:       r.options.Node,
			Kubeconfig: d.Kubeconfig,
			Timeout:    d.WriteTimeout.Duration,
			UserAgent:  r.options.UserAgent,
			Since:      r.since,
		}, r.publishMetrics)
		r.publishers = append(r.publishers, p)
		r.running.Go(func() { p.Run(ctx) })
	}
}

// probe asks targets, all at once; one that is still being asked is left alone.
func (r *Reporter) probe(ctx context.Context, targets []*target) {
	for _, t := range targets {
		if t.busy {
			continue
		}
		t.busy = true
		r.waiting++
		settings := t.settings
		r.running.Go(func() {
			result := t.plugin.Probe(t.ctx, settings)
			select {
			case r.answers <- answer{t, result}:
			case <-ctx.Done():
				t.plugin.Close() // nobody takes the answer any more
			}
		})
	}
}

// observe takes in one answer, and publishes when it completes a round.
func (r *Reporter) observe(a answer) {
	t := a.target
	t.busy = false
	if t.dropped {
		t.plugin.Close()
		return
	}
	r.waiting--
	r.metrics.observe(t.keyID, a.result)
	logChange(t, a.result)
	t.probed, t.last = true, a.result
	if a.result.KEKID != "" {
		t.lastKEKID = a.result.KEKID
	}
	switch {
	case r.waiting == 0:
		r.publish()
	case !r.hurrying:
		r.hurrying = true
		r.hurry.Reset(grace)
	}
}

// logChange logs the first result of a plugin, and each that differs in kind
// from the one before.
func logChange(t *target, now probe.Result) {
	before := t.last
	if t.probed && before.Status == now.Status && before.Gone == now.Gone && before.KEKID == now.KEKID {
		return
	}
	switch {
	case now.Gone:
		klog.InfoS("The socket's folder was deleted: nothing to observe", "keyID", t.keyID, "socket", t.address)
	case now.Status == health.Healthy:
		klog.InfoS("Plugin is healthy", "keyID", t.keyID, "socket", t.address, "kekID", now.KEKID)
	default:
		klog.ErrorS(nil, "Plugin is not healthy", "keyID", t.keyID, "socket", t.address, "status", now.Status, "detail", now.Detail)
	}
}

// publish hands what is known to everyone who wants it.
func (r *Reporter) publish() {
	r.hurry.Stop()
	r.hurrying = false
	r.show()
	list := observed(r.targets, r.config.Probe.Interval.Duration)
	for _, p := range r.publishers {
		p.Offer(list)
	}
	if r.output == nil {
		return
	}
	message, err := health.EncodeMessage(entriesOf(list))
	if err != nil {
		klog.ErrorS(err, "Cannot encode what was observed")
		return
	}
	r.output.offer(message)
}

// show makes the current state visible to the server.
func (r *Reporter) show() {
	view := &serve.View{Configured: r.config != nil, ConfigError: r.complaint}
	for _, t := range r.targets {
		view.Plugins = append(view.Plugins, t.entry(r.config.Probe.Interval.Duration))
	}
	if r.config == nil && view.ConfigError == "" {
		view.ConfigError = "not read yet"
	}
	r.view.Store(view)
}

// checkWatch logs when the kernel stops telling of changes, and when it tells
// again.
func (r *Reporter) checkWatch() {
	watching, err := r.watcher.Watching()
	if watching == !r.deaf {
		return
	}
	r.deaf = !watching
	if r.deaf {
		klog.ErrorS(err, "Changes of the configuration file are seen every 10 seconds only", "file", r.options.ConfigFile)
	} else {
		klog.InfoS("Changes of the configuration file are seen at once again", "file", r.options.ConfigFile)
	}
}
