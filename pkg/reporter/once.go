package reporter

import (
	"context"
	"sync"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// Once probes every plugin of a configuration one time, all at once, with a round trip
// unless that is off, and returns their entries in the order of a report. A plugin with
// nothing to observe, or that the reporter could not probe, has no entry: unobserved has
// the reason, by keyID. Once takes at most six times the longest timeout, or ten seconds.
func Once(ctx context.Context, config *v1alpha1.ReporterConfiguration) (entries []health.Entry, unobserved map[string]string) {
	var plugins []*plugin
	var probes sync.WaitGroup
	for _, w := range want(config) {
		p := &plugin{identity: w.identity, conn: probe.NewPlugin(w.address)}
		plugins = append(plugins, p)
		probes.Go(func() {
			defer p.conn.Close()
			w.settings.Late = lateAnswer
			p.conn.Probe(ctx, w.settings, func(r probe.Result) {
				if p.probed { // the diagnosis of a timeout, which is not another verdict
					r.At = p.last.At
				}
				p.last, p.probed = r, r.NotProbed == ""
			})
			if p.trips.due(p.last.At, config.Probe.Checks.RoundTrip.Interval.Duration, p.last) {
				p.trips.end(p.conn.RoundTrip(ctx, w.settings, p.last.KEKID))
			}
		})
	}
	probes.Wait()
	unobserved = map[string]string{}
	for _, p := range plugins {
		if p.last.NotProbed != "" || p.last.Gone {
			unobserved[p.keyID] = p.last.NotProbed + p.last.Detail
		}
	}
	return entriesOf(observed(plugins, config.Probe.Interval.Duration)), unobserved
}
