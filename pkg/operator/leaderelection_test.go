package operator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationfake "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/kms-health/kms-health/pkg/contract"
)

// lease is an API with a Lease that several replicas share.
type lease struct {
	coordinationfake.FakeCoordinationV1
	tracker clienttesting.ObjectTracker

	mu  sync.Mutex
	err error // of every request
}

func newLease() *lease {
	l := &lease{tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	l.Fake = &clienttesting.Fake{}
	l.Fake.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err != nil, nil, l.err
	})
	l.Fake.AddReactor("*", "*", clienttesting.ObjectReaction(l.tracker))
	return l
}

func (l *lease) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// run is an election of one replica.
type run struct {
	cancel  func()
	working chan struct{} // closed when its work began
	stopped chan struct{} // closed when its work ended
	err     chan error
}

func start(l *lease, name string) *run {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{cancel: cancel, working: make(chan struct{}), stopped: make(chan struct{}), err: make(chan error, 1)}
	go func() {
		r.err <- lead(ctx, Options{LeaderElect: true, Namespace: "ns", Pod: name}, l, func(ctx context.Context) {
			close(r.working)
			<-ctx.Done()
			o, err := l.tracker.Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), "ns", contract.OperatorName)
			if err != nil || *o.(*coordinationv1.Lease).Spec.HolderIdentity != name {
				panic("the lease was released before the work had ended")
			}
			close(r.stopped)
		})
	}()
	return r
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestOneReplicaWorksAndReleasesTheLeaseAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease()
		first := start(l, "first")
		<-first.working
		second := start(l, "second")
		time.Sleep(time.Hour)
		if closed(second.working) {
			t.Fatal("both work")
		}
		first.cancel()
		if err := <-first.err; err != nil || !closed(first.stopped) {
			t.Fatal(err)
		}
		began := time.Now()
		<-second.working
		// The waiting replica's period is random, up to this.
		longest := time.Duration((1 + leaderelection.JitterFactor) * float64(leaseTimings(Options{}).RetryPeriod.Duration))
		if took := time.Since(began); took > longest {
			t.Errorf("the next replica waited %s for a released lease", took)
		}
		second.cancel()
		if err := <-second.err; err != nil {
			t.Error(err)
		}
	})
}

func TestSameIdentityTakesAKilledProcessesLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease()
		for range 2 { // the first one does not release its lease
			l.fail(nil)
			r := start(l, "pod")
			began := time.Now()
			<-r.working
			if took := time.Since(began); took > 0 {
				t.Errorf("took %s", took)
			}
			l.fail(errors.New("connection refused"))
			r.cancel()
			if err := <-r.err; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestElectionStartsWhenTheAPIServerAnswers(t *testing.T) {
	for name, away := range map[string]error{
		"refused": errors.New("connection refused"), "starting": apierrors.NewServiceUnavailable("starting"),
		"overloaded": apierrors.NewTooManyRequests("x", 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLease()
				l.fail(away)
				r := start(l, "pod")
				time.Sleep(10*time.Minute + 500*time.Millisecond)
				l.fail(nil)
				began := time.Now()
				<-r.working
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %s", took)
				}
				// A leader survives an outage of a minute.
				l.fail(away)
				time.Sleep(time.Minute)
				l.fail(nil)
				time.Sleep(time.Hour)
				if closed(r.stopped) {
					t.Error("a minute without the API server ended the work")
				}
				r.cancel()
				if err := <-r.err; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestLostLeaseEndsTheWorkWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease()
		r := start(l, "pod")
		<-r.working
		l.fail(errors.New("connection refused"))
		began := time.Now()
		err := <-r.err
		synctest.Wait()
		if took := time.Since(began); err == nil || !closed(r.stopped) || took > leaseTimings(Options{}).LeaseDuration.Duration {
			t.Errorf("%v after %s, work ended: %t", err, took, closed(r.stopped))
		}
	})
}

func TestEndDoesNotWaitForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waiting := range []bool{true, false} {
			l, away := newLease(), errors.New("connection refused")
			if waiting {
				l.fail(away)
			}
			r := start(l, "pod")
			if !waiting {
				<-r.working
			}
			l.fail(away)
			time.Sleep(time.Minute + 500*time.Millisecond)
			began := time.Now()
			r.cancel()
			if err := <-r.err; err != nil || time.Since(began) > time.Second {
				t.Errorf("waiting for the lease: %t: %v after %s", waiting, err, time.Since(began))
			}
		}
	})
}
