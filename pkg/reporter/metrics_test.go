package reporter

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metric"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// A round trip that was skipped called nothing: it must not count as a fast one.
func TestOnlyRoundTripsThatWereMadeHaveADuration(t *testing.T) {
	m := newMetrics(&metric.Set{})
	durations := func() int {
		return strings.Count(string(m.set.Text()), contract.MetricRoundTripDuration.Name+"_count{")
	}
	m.observeTrip("2", probe.Trip{})
	m.observeTrip("1", probe.Trip{Made: true, Status: contract.Healthy, Took: time.Millisecond})
	m.observeTrip("1", probe.Trip{Made: true, Status: contract.Error, Took: 3 * time.Second})
	if n := durations(); n != 1 {
		t.Errorf("%d plugins have a duration", n)
	}
	if n := m.roundTrips.Value("2", "skipped"); n != 1 {
		t.Errorf("%v skipped", n)
	}
	m.forget("1")
	if n := durations(); n != 0 {
		t.Errorf("%d plugins have a duration after they were removed", n)
	}
}
