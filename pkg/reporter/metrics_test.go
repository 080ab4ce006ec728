package reporter

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/harness/scraped"
)

// A skipped round trip makes no call, so it must not count as a fast one.
func TestOnlyRoundTripsThatWereMadeHaveADuration(t *testing.T) {
	r := &Reporter{metrics: metrics.New(contract.ReporterMetrics)}
	durations := func() int {
		return strings.Count(string(r.metrics.Text()), contract.MetricRoundTripDuration.Name+"_count{")
	}
	r.countTrip("2", probe.Trip{})
	r.countTrip("1", probe.Trip{Made: true, Status: contract.Healthy, Took: time.Millisecond})
	r.countTrip("1", probe.Trip{Made: true, Status: contract.Error, Took: 3 * time.Second})
	if n := durations(); n != 1 {
		t.Errorf("%d plugins have a duration", n)
	}
	if n := scraped.Value(r.metrics.Text(), contract.MetricRoundTrips, "2", "skipped"); n != 1 {
		t.Errorf("%v skipped", n)
	}
	r.forget("1")
	if n := durations(); n != 0 {
		t.Errorf("%d plugins have a duration after they were removed", n)
	}
}
