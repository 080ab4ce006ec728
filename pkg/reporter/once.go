package reporter

import (
	"context"
	"sync"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// Once probes every plugin of a configuration one time, all at once, with a round trip
// unless that is off, and returns their entries in the order of a report. A plugin with
// nothing to observe, or that the reporter could not probe, has no entry: unobserved has
// the reason, by keyID: none is healthy whose round trip could not be made. Once takes at most
// twenty-four times the longest timeout, or a second.
func Once(ctx context.Context, config *v1alpha1.ReporterConfiguration) (entries []contract.Entry, unobserved map[string]string) {
	var plugins []*plugin
	var probes sync.WaitGroup
	for _, w := range want(config) {
		p := &plugin{identity: w.identity, conn: probe.NewPlugin(w.address)}
		plugins = append(plugins, p)
		probes.Go(func() {
			defer p.conn.Close()
			p.once(ctx, w.settings, config.Probe)
		})
	}
	probes.Wait()
	unobserved = map[string]string{}
	for _, p := range plugins {
		if p.last.NotProbed != "" || p.last.Gone {
			unobserved[p.keyID] = p.last.NotProbed + p.last.Detail
		}
	}
	return observed(plugins, config.Probe.Interval.Duration), unobserved
}

// once probes a plugin and makes a round trip. If that cannot be made, it does both again, until
// that is an error of the plugin, or Status is not answered.
func (p *plugin) once(ctx context.Context, settings probe.Settings, c v1alpha1.Probe) {
	for {
		p.last = p.conn.Probe(ctx, settings)
		p.probed = p.last.NotProbed == ""
		p.trips.observe(p.last.At, c.Interval.Duration, p.last)
		if !p.last.Answered || c.Checks.RoundTrip.Interval.Duration == 0 {
			return
		}
		trip := p.conn.RoundTrip(ctx, settings, p.last.KEKID)
		p.trips.end(trip)
		if trip.Stalled {
			p.probed = false
			p.last = probe.Result{NotProbed: "the reporter itself did not run for a time, so the round trip has no result"}
		}
		if trip.Stalled || p.trips.last.Made {
			return
		}
	}
}
