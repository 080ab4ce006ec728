package reporter

import (
	"context"
	"sync"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// Once probes every plugin of a configuration one time, all at once, and returns
// their entries in the order of a report. It lasts as long as the longest of
// their timeouts at most. A plugin with nothing to observe has no entry.
func Once(ctx context.Context, config *v1alpha1.ReporterConfiguration) []health.Entry {
	var targets []*target
	var probes sync.WaitGroup
	for _, w := range want(config) {
		t := &target{identity: w.identity, plugin: probe.NewPlugin(w.address), probed: true}
		targets = append(targets, t)
		probes.Go(func() {
			defer t.plugin.Close()
			t.last = t.plugin.Probe(ctx, w.settings)
		})
	}
	probes.Wait()
	return entriesOf(observed(targets, config.Probe.Interval.Duration))
}
