// Package leader runs work on one replica at a time, elected by a Lease.
//
// The work runs while the lease is held. The lease is released when the process ends,
// after the work has ended, so that the next replica need not wait for its expiry.
// While the API server is unreachable, requests are retried every second, and one line is
// logged.
package leader

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/operator/outage"
)

// Timings of a lease: how long it lasts, for how long its holder tries to renew it, and
// how often.
type Timings struct{ Lease, Renew, Retry time.Duration }

// OpenShift's conventions for leases: they tolerate 60 s without an API server, and
// with a single replica longer, since then the only API server may restart.
var (
	Replicated    = Timings{Lease: 137 * time.Second, Renew: 107 * time.Second, Retry: 26 * time.Second}
	SingleReplica = Timings{Lease: 270 * time.Second, Renew: 240 * time.Second, Retry: 60 * time.Second}
)

// grace bounds how long the work may take to end, and then the release of the lease.
const grace = 10 * time.Second

// Run waits for the lease and runs work until ctx ends, which is no error. An error
// means that the lease was lost, or that the work did not end: the process must end.
func Run(ctx context.Context, lock resourcelock.Interface, timings Timings, work func(context.Context)) error {
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	elected, ended := make(chan struct{}), make(chan struct{})
	patient := &retryingLock{Interface: lock, log: outage.NewLog("for the lease"), end: ctx.Done(), lost: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            patient,
		LeaseDuration:   timings.Lease,
		RenewDeadline:   timings.Renew,
		RetryPeriod:     timings.Retry,
		ReleaseOnCancel: true,
		Name:            lock.Describe(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	klog.InfoS("Waiting for the lease", "lease", lock.Describe(), "identity", lock.Identity())
	go func() {
		defer close(ended)
		// Its log would repeat, at every attempt, what the lock logs once.
		elector.Run(klog.NewContext(election, logr.Discard()))
	}()
	select {
	case <-ctx.Done():
		end()
		if withinGrace(ended) {
			release(lock)
		}
		return nil
	case <-elected:
	}
	klog.InfoS("Acquired the lease", "lease", lock.Describe())
	return lead(ctx, patient, work, end, ended)
}

// releaseTimeout bounds the release of a lease that this process did not acquire.
const releaseTimeout = 2 * time.Second

// release releases the lease of an earlier container of this pod, which this process would have
// taken over. What cannot be released expires.
func release(lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != lock.Identity() {
		return
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := lock.Update(ctx, *record); err == nil {
		klog.InfoS("Released the lease of an earlier container", "lease", lock.Describe())
	}
}

// lead runs work while the lease is held. end ends the election, and releases the lease.
func lead(ctx context.Context, lock *retryingLock, work func(context.Context), end func(), ended <-chan struct{}) error {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan struct{})
	go func() { defer close(worked); work(leading) }()
	lost := func() error {
		stop()
		withinGrace(worked)
		return fmt.Errorf("the lease %s was lost: it could not be renewed in time, or another replica holds it", lock.Describe())
	}
	select {
	case <-lock.lost:
		return lost()
	case <-ended:
		return lost()
	case <-ctx.Done():
	}
	if !withinGrace(worked) {
		lock.keep.Store(true)
		return fmt.Errorf("the controllers did not end within %s; the lease %s was not released", grace, lock.Describe())
	}
	end()
	withinGrace(ended)
	return nil
}

// withinGrace waits for done, for the grace period at most.
func withinGrace(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(grace):
		return false
	}
}
