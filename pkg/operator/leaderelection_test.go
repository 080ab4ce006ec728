package operator

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// lease is a Lease that several replicas share.
type lease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
	err    error // of every request
}

func (l *lease) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.HolderIdentity
}

func (l *lease) put(r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.record = &r
	}
	return l.err
}

// replica is one replica's view of a lease.
type replica struct {
	*lease
	name string
}

func (r replica) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, nil, r.err
	}
	if r.record == nil {
		return nil, nil, apierrors.NewNotFound(leases, "test")
	}
	raw, err := json.Marshal(r.record)
	record := *r.record
	return &record, raw, err
}

func (r replica) Create(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.put(record)
}

func (r replica) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.put(record)
}
func (r replica) RecordEvent(string) {}
func (r replica) Identity() string   { return r.name }
func (r replica) Describe() string   { return "test/test" }

// run is an election of one replica.
type run struct {
	lease   *lease
	cancel  func()
	working chan struct{} // closed when its work began
	stopped chan struct{} // closed when its work ended
	err     chan error
}

func start(l *lease, name string) *run {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{
		lease: l, cancel: cancel, working: make(chan struct{}), stopped: make(chan struct{}),
		err: make(chan error, 1),
	}
	go func() {
		r.err <- elect(ctx, replica{l, name}, leaseTimings(Options{}), func(ctx context.Context) {
			close(r.working)
			<-ctx.Done()
			if l.holder() != name {
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
		l := &lease{}
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
		l := &lease{}
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
				l := &lease{err: away}
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
		l := &lease{}
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
			l := &lease{}
			if waiting {
				l.fail(errors.New("connection refused"))
			}
			r := start(l, "pod")
			if !waiting {
				<-r.working
				l.fail(errors.New("connection refused"))
			}
			time.Sleep(time.Minute + 500*time.Millisecond)
			began := time.Now()
			r.cancel()
			if err := <-r.err; err != nil || time.Since(began) > time.Second {
				t.Errorf("waiting for the lease: %t: %v after %s", waiting, err, time.Since(began))
			}
		}
	})
}
