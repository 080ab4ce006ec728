package reportercontroller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// lastStatus is a roll-up that keeps the delivery's last status.
type lastStatus struct {
	noRollup
	last delivery.Status
}

func (r *lastStatus) Set(p delivery.Snapshot) { r.last = p.Status }

func TestOnlyAnAPIServerThatDoesNotAnswerIsNotReported(t *testing.T) {
	cut := fmt.Errorf("delete ConfigMap ns/b: %w", &url.Error{Op: "Delete", URL: "https://api",
		Err: context.DeadlineExceeded})
	refused := &url.Error{Op: "Patch", URL: "https://api", Err: errors.New("connection refused")}
	slow := &url.Error{Op: "Patch", URL: "https://api", Err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}}
	answered := apierrors.NewInternalError(errors.New("the plugin is unhealthy"))
	for name, c := range map[string]struct {
		err      error
		reported bool
	}{
		"an answer":                                {answered, true},
		"a request that was cut off":               {cut, true},
		"a request that was cut off after others":  {errors.Join(answered, cut), true},
		"no connection":                            {refused, false},
		"no connection in time":                    {slow, false},
		"no success, and something answered":       {errors.Join(answered, refused), true},
		"an error that is no outcome of a request": {errors.New("cannot be read"), true},
	} {
		t.Run(name, func(t *testing.T) {
			rollup := &lastStatus{}
			o := Options{
				Namespace: "kms-health", Registry: prometheus.NewRegistry(), Clock: clock.RealClock{},
				Now: time.Now, Queue: syncqueue.New(clock.RealClock{}, "deliver"), ClusterOperator: noQueue{},
				Health: rollup, Event: func(_, _, _, _ string) {},
			}
			controller := New(o)
			defer controller.Queue.ShutDown()
			e := &serverState{target: v1alpha1.APIServer{Name: "api"},
				published: delivery.Snapshot{APIServer: v1alpha1.APIServer{Name: "api"}}}
			controller.targets["api"] = e
			s := &Snapshot{Resource: &operatorstatus.Status{}}
			s.Target = &v1alpha1.APIServer{Name: "api", Resource: v1alpha1.ResourceKubeAPIServers}
			controller.finish(t.Context(), e, s, &Result{Status: problemOf(c.err), Err: c.err})
			if got := e.status.Reason == contract.RequestFailed && rollup.last == e.status; got != c.reported {
				t.Errorf("reported: %v; status %+v, to the roll-up %+v", got, e.status, rollup.last)
			}
		})
	}
}
