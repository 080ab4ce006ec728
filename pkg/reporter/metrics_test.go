package reporter

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// A round trip that was skipped called nothing: it must not count as a fast one.
func TestOnlyRoundTripsThatWereMadeHaveADuration(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.observeTrip("2", probe.Trip{})
	m.observeTrip("1", probe.Trip{Made: true, Status: contract.Healthy, Took: time.Millisecond})
	m.observeTrip("1", probe.Trip{Made: true, Status: contract.Error, Took: 3 * time.Second})
	if n := testutil.CollectAndCount(m.tripDuration); n != 1 {
		t.Errorf("%d plugins have a duration", n)
	}
	if n := testutil.ToFloat64(m.roundTrips.WithLabelValues("2", "skipped")); n != 1 {
		t.Errorf("%v skipped", n)
	}
	m.forget("1")
	if n := testutil.CollectAndCount(m.tripDuration); n != 0 {
		t.Errorf("%d plugins have a duration after they were removed", n)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
