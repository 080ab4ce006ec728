package reporter

import (
	"cmp"
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

func (r *Reporter) reload(ctx context.Context, c filewatch.Content) {
	if c.Err != nil {
		r.reject(reloadUnreadable, c.Err)
		return
	}
	config, err := v1alpha1.DecodeReporter(c.Data)
	if err != nil {
		r.reject(reloadInvalid, err)
		return
	}
	r.metrics.Add(contract.MetricReloads, 1, reloadApplied)
	r.metrics.Delete(contract.MetricConfig, "sha256", r.sum)
	r.configError, r.sum = "", contract.FileHash(c.Data)
	r.metrics.Set(contract.MetricReloadGood, 1)
	r.metrics.SetTime(contract.MetricConfigApplied, time.Now())
	r.metrics.Set(contract.MetricConfig, 1, r.sum)
	klog.InfoS("Configuration active", "file", r.options.ConfigFile, "sha256", r.sum, "plugins", len(config.Plugins),
		"interval", config.Probe.Interval.Duration)
	r.compare(v1alpha1.PluginSetHash(config.Plugins))
	r.apply(ctx, config)
}

// compare logs when the pod was created for another plugin set than the file's, which is old or was edited.
func (r *Reporter) compare(set string) {
	r.mismatch = ""
	r.metrics.Set(contract.MetricConfigExpected, 1)
	if made := r.options.ConfigHash; made != "" && made != set {
		r.mismatch = fmt.Sprintf("the pod was created for config-hash %s, but the file's plugin set has %s", made, set)
		r.metrics.Set(contract.MetricConfigExpected, 0)
		klog.InfoS("The configuration is not the one that this pod was created for", "file", r.options.ConfigFile,
			"why", r.mismatch)
	}
}

// reject keeps the configuration in use, and logs why the file was rejected.
func (r *Reporter) reject(result string, err error) {
	r.metrics.Add(contract.MetricReloads, 1, result)
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

// apply does not interrupt plugins that did not change.
func (r *Reporter) apply(ctx context.Context, config *v1alpha1.ReporterConfiguration) {
	before := cmp.Or(r.config, &v1alpha1.ReporterConfiguration{})
	r.config = config
	plugins, changed, leftOver := arrange(r.plugins, want(config), func(w wanted) *plugin {
		p := &plugin{wanted: w, conn: probe.NewPlugin(w.address), probes: make(chan probe.Settings, 1)}
		p.trips.samples = r.state.Plugins[w.id()]
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
	for _, p := range plugins {
		if r.tripInterval() == 0 {
			p.trips = trips{busy: p.trips.busy} // nothing would replace its verdict
		}
		p.trips.request = config.Probe.Checks.RoundTrip.Requested
	}
	r.serve(ctx, before.Serving, config.Serving)
	r.write(ctx, destination(before), destination(config))
	switch {
	case len(plugins) == 0:
		r.tick = nil
	case len(before.Plugins) == 0 || before.Probe.Interval != config.Probe.Interval:
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

func (r *Reporter) serve(ctx context.Context, before, config *v1alpha1.Serving) {
	if reflect.DeepEqual(before, config) {
		return
	}
	r.stopServing()
	ctx, r.stopServing = context.WithCancel(ctx)
	if config != nil {
		r.running.Go(func() { r.server.Serve(ctx, config) })
	}
}

// destination is where a configuration's reports are written; nil if nowhere, or if there are no plugins.
func destination(c *v1alpha1.ReporterConfiguration) *v1alpha1.Destination {
	if len(c.Plugins) == 0 {
		return nil
	}
	return c.Destination
}

// write has reports written to a destination. A publisher to a former one stops, with its running write.
func (r *Reporter) write(ctx context.Context, before, to *v1alpha1.Destination) {
	if reflect.DeepEqual(before, to) {
		return
	}
	r.stopWriting()
	ctx, r.stopWriting = context.WithCancel(ctx)
	r.publisher = nil
	if to == nil {
		return
	}
	p := publish.New(publish.Config{
		To:          contract.ResourceFor(string(to.Resource), to.Name),
		Node:        r.options.Node,
		UserAgent:   r.options.UserAgent,
		Since:       r.since,
		Destination: *to,
	}, r.metrics)
	r.publisher = p
	r.running.Go(func() { p.Run(ctx) })
}
