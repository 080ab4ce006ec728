package reporter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
)

// reading is one result of reading the file: a configuration, or an error.
type reading struct {
	config *v1alpha1.ReporterConfiguration
	sum    string // SHA-256 of the file, in hexadecimal
	result string // for the metric
	err    error
}

// read decodes the file. It does not run in the loop, since decoding a large file
// takes long.
func read(c filewatch.Content) reading {
	if c.Err != nil {
		return reading{result: reloadUnreadable, err: c.Err}
	}
	config, err := v1alpha1.DecodeReporter(c.Data)
	if err != nil {
		return reading{result: reloadInvalid, err: err}
	}
	return reading{config: config, sum: contract.FileHash(c.Data), result: reloadApplied}
}

// reload applies the result of reading the file.
func (r *Reporter) reload(ctx context.Context, now reading) {
	r.metrics.Add(contract.MetricReloads, 1, now.result)
	if now.err != nil {
		r.reject(now.err)
		return
	}
	r.metrics.Delete(contract.MetricConfig, "sha256", r.sum)
	r.configError, r.sum = "", now.sum
	r.metrics.Set(contract.MetricReloadGood, 1)
	r.metrics.SetTime(contract.MetricConfigApplied, time.Now())
	r.metrics.Set(contract.MetricConfig, 1, r.sum)
	klog.InfoS("Configuration active", "file", r.options.ConfigFile, "sha256", r.sum, "plugins",
		len(now.config.Plugins), "interval", now.config.Probe.Interval.Duration)
	r.compare(now)
	r.apply(ctx, now.config)
}

// compare logs when the file's plugin set is not the one that the pod was created for: the file is
// old and not replaced yet, or was edited.
func (r *Reporter) compare(now reading) {
	made, set := r.options.ConfigHash, v1alpha1.PluginSetHash(now.config.Plugins)
	r.mismatch = ""
	r.metrics.Set(contract.MetricConfigExpected, 1)
	if made != "" && made != set {
		r.mismatch = fmt.Sprintf("the pod was created for config-hash %s, but the file's plugin set has %s", made, set)
		r.metrics.Set(contract.MetricConfigExpected, 0)
		klog.InfoS("The configuration is not the one that this pod was created for", "file", r.options.ConfigFile,
			"why", r.mismatch)
	}
}

// reject keeps the configuration in use, and logs why the file was rejected.
func (r *Reporter) reject(err error) {
	r.metrics.Set(contract.MetricReloadGood, 0)
	r.configError = strings.ReplaceAll(err.Error(), "\n", "; ")
	switch {
	case r.config != nil:
		klog.ErrorS(err, "Configuration file cannot be used; the last good one stays active", "file", r.options.ConfigFile,
			"sha256", r.sum)
	case errors.Is(err, fs.ErrNotExist):
		klog.InfoS("No configuration file yet; waiting for it", "file", r.options.ConfigFile)
	default:
		klog.ErrorS(err, "Configuration file cannot be used; waiting for a good one", "file", r.options.ConfigFile)
	}
}

// apply applies a configuration. Plugins that did not change are not interrupted.
func (r *Reporter) apply(ctx context.Context, config *v1alpha1.ReporterConfiguration) {
	before := r.config
	r.config = config
	plugins, changed, leftOver := arrange(r.plugins, want(config), func(w wanted) *plugin {
		p := &plugin{wanted: w, conn: probe.NewPlugin(w.address), probes: make(chan probe.Settings, 1)}
		p.trips.samples = r.state.Plugins[w.identity.String()]
		p.ctx, p.cancel = context.WithCancel(ctx)
		r.running.Go(func() { r.prober(p) })
		return p
	})
	r.plugins = plugins
	for _, p := range leftOver {
		p.cancel()
		r.running.Go(p.conn.Close) // not in the loop
		r.forget(p.keyID)
	}
	request := config.Probe.Checks.RoundTrip.Requested
	for _, p := range plugins {
		if r.tripInterval() == 0 {
			p.trips = trips{busy: p.trips.busy} // nothing would replace its verdict
		}
		p.trips.request = request
	}
	r.server.Apply(ctx, config.Serving)
	if to := destination(config); !reflect.DeepEqual(destination(before), to) {
		r.startPublisher(ctx, to)
	}
	switch {
	case len(plugins) == 0:
		r.tick = nil
	case before == nil || len(before.Plugins) == 0 || before.Probe.Interval != config.Probe.Interval:
		// With a shorter interval, an entry that was fresh before may be stale.
		changed = plugins
		r.tick = time.After(jitter(config.Probe.Interval.Duration))
	case before.Probe.Checks.RoundTrip != config.Probe.Checks.RoundTrip:
		changed = plugins
	}
	r.probe(changed)
	if r.complete() {
		r.publish()
	}
	r.save(time.Now(), true)
}

// destination is where a configuration's reports are written; nil if nowhere, or if there are no plugins.
func destination(c *v1alpha1.ReporterConfiguration) *v1alpha1.Destination {
	if c == nil || len(c.Plugins) == 0 {
		return nil
	}
	return c.Destination
}

// startPublisher stops the current publisher and its running write, and starts one for a destination;
// none if that is nil.
func (r *Reporter) startPublisher(ctx context.Context, d *v1alpha1.Destination) {
	if r.stopPublisher != nil {
		r.stopPublisher()
		r.publisher, r.stopPublisher = nil, nil
	}
	if d == nil {
		return
	}
	ctx, r.stopPublisher = context.WithCancel(ctx)
	p := publish.New(publish.Config{
		To:          resourceOf(d),
		Node:        r.options.Node,
		UserAgent:   r.options.UserAgent,
		Since:       r.since,
		Destination: *d,
	}, r.metrics)
	r.publisher = p
	r.running.Go(func() { p.Run(ctx) })
}

func resourceOf(d *v1alpha1.Destination) contract.Resource {
	if o := d.Object; o != nil {
		return contract.Resource{Group: o.Group, Version: o.Version, Plural: o.Resource, Kind: o.Kind,
			Namespace: o.Namespace, Name: o.Name}
	}
	return contract.ResourceOf(string(d.Resource))
}
