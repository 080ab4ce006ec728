package leader

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kms-health/kms-health/pkg/operator/outage"
)

// requestTimeout bounds a request for the lease. The default of client-go, half of the
// time in which the lease must be renewed, is minutes: a single request that hangs, on
// a connection to an API server that is about to end, would use them up.
const requestTimeout = 10 * time.Second

// NewLock returns a lock that is a Lease. The identity should be the pod's name: a
// container that was killed could not release the lease, and the next container of the
// same pod, of which there is one at a time, takes it over at once. An empty identity
// is replaced by a new one.
func NewLock(config *rest.Config, namespace, name, identity string) (resourcelock.Interface, error) {
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	// It sets the timeout of requests to half of its last argument.
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name,
		resourcelock.ResourceLockConfig{Identity: identity}, config, 2*requestTimeout)
}

// retryingLock retries every second while the API server is unreachable. Leader election
// itself retries once in its retry period, up to two minutes, although the API server may
// be reachable again after a second.
type retryingLock struct {
	resourcelock.Interface
	log *outage.Log
	// end closes when the process ends: nothing is waited for then.
	end <-chan struct{}
	// lost closes when the time in which the lease must be renewed is over. Leader
	// election then still tries to release it, for as long again.
	lost     chan struct{}
	loseOnce sync.Once
	// keep forbids to release the lease: the work has not ended.
	keep atomic.Bool
}

// Get is resourcelock.Interface's.
func (l *retryingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		record, raw, err := l.Interface.Get(ctx)
		l.log.Observe(err)
		if !outage.Away(err) {
			return record, raw, err
		}
		select {
		case <-ctx.Done():
			l.loseOnce.Do(func() { close(l.lost) })
			return nil, nil, err
		case <-l.lost:
			return nil, nil, err
		case <-l.end:
			return nil, nil, err
		case <-time.After(time.Second):
		}
	}
}

// Create is resourcelock.Interface's.
func (l *retryingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.log.Observe(err)
	return err
}

// Update is resourcelock.Interface's.
func (l *retryingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.keep.Load() && record.HolderIdentity == "" {
		return errors.New("the lease is kept until it expires: its holder still works")
	}
	err := l.Interface.Update(ctx, record)
	l.log.Observe(err)
	return err
}
