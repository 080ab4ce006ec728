package operator

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

// The alert on an absent operator rests on it. A replica that has not been elected exports
// 0, and none of the series of targets.
func TestLeaderGaugeIsOneWhileTheControllersRun(t *testing.T) {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"}) // nobody answers
	if err != nil {
		t.Fatal(err)
	}
	registry, no := prometheus.NewPedanticRegistry(), false
	op := New(Options{Options: delivery.Options{
		Client: client, Registry: registry, Clock: clock.RealClock{}, Now: time.Now, OpenShift: &no,
		Event: func(string, string, string, string) {},
	}})
	expect := func(want float64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); testutil.ToFloat64(op.leading) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the gauge is not %v", want)
			}
		}
	}
	expect(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); op.Run(ctx) }()
	expect(1)
	cancel()
	<-ended
	expect(0)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
