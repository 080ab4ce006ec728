package operator

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
)

// running is a controller that closes itself when it runs.
type running chan struct{}

func (r running) Run(ctx context.Context) { close(r); <-ctx.Done() }

// The alert on an absent operator uses this gauge. A replica that was not elected exports 0, and no series of API
// servers.
func TestLeaderGaugeIsOneWhileTheControllersRun(t *testing.T) {
	leading := metric.GaugeVec(prometheus.NewPedanticRegistry(), contract.MetricLeader).WithLabelValues()
	if got := testutil.ToFloat64(leading); got != 0 {
		t.Errorf("got %v before, want 0", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, one, two := make(chan struct{}), make(running), make(running)
	go func() {
		defer close(ended)
		work(leading, []controller{one, two})(ctx)
	}()
	<-one
	<-two
	if got := testutil.ToFloat64(leading); got != 1 {
		t.Errorf("got %v while they run, want 1", got)
	}
	cancel()
	<-ended
	if got := testutil.ToFloat64(leading); got != 0 {
		t.Errorf("got %v after, want 0", got)
	}
}
