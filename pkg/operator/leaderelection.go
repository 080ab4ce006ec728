package operator

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	libraryelection "github.com/openshift/library-go/pkg/config/leaderelection"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// leaseTimings returns how long a lease lasts, for how long its holder tries to renew it, and how often. These are
// the values of OpenShift's operators (library-go). They tolerate 60 s without an API server. With a single replica
// they tolerate more, because the only API server may restart.
func leaseTimings(o Options) configv1.LeaderElection {
	if o.SingleReplica {
		return libraryelection.LeaderElectionSNOConfig(configv1.LeaderElection{})
	}
	return libraryelection.LeaderElectionDefaulting(configv1.LeaderElection{}, o.Namespace, contract.OperatorName)
}

// lead runs work on one replica at a time, the holder of a Lease, until ctx ends, which is no error. The lease is
// released after the work has ended. An error means that the lease was lost: the process must end.
func lead(ctx context.Context, o Options, client typedcoordinationv1.LeasesGetter, work func(context.Context)) error {
	if !o.LeaderElect {
		work(ctx)
		return nil
	}
	// The identity is the pod's name, so a restarted container takes over the lease of its killed predecessor at once.
	// Without that name every start has a new identity.
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: contract.OperatorName}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cmp.Or(o.Pod, string(uuid.NewUUID()))},
	}
	t := leaseTimings(o)
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var working atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: lock.Describe(), ReleaseOnCancel: true,
		LeaseDuration: t.LeaseDuration.Duration, RenewDeadline: t.RenewDeadline.Duration, RetryPeriod: t.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				working.Store(true)
				defer end()
				leading, stop := context.WithCancel(leading)
				defer context.AfterFunc(ctx, stop)()
				work(leading)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if !working.Load() {
			end()
		}
	})()
	awaitServer(ctx, lock)
	elector.Run(election)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the lease %s was lost: it could not be renewed in time, or another replica holds it",
		lock.Describe())
}

// awaitServer waits until the API server answers. The network of a node that has just started drops the first
// requests, and the election of a single replica would try again only after up to 132 s.
func awaitServer(ctx context.Context, lock resourcelock.Interface) {
	logged := false
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		_, _, err := lock.Get(ctx)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return true, nil
		}
		if !logged {
			klog.ErrorS(err, "Failed to read the lease, retrying", "lease", lock.Describe())
		}
		logged = true
		return false, nil
	}) // the only error is that ctx ended
}
