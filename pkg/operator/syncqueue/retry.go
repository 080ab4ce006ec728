// Package syncqueue is the queue of a controller: client-go's, with a line in the log for each change of a
// failure, not for each try.
package syncqueue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Queue has the names of what is to be synced.
type Queue struct {
	workqueue.TypedDelayingInterface[string]
	what    string
	limiter workqueue.TypedRateLimiter[string]
	clock   clock.PassiveClock

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	text  string
	until time.Time // of the next try
}

// NewQueue makes a Queue in which a name that failed comes back after first to last, each time after twice
// as long. what is done to it is in the log. The clock is that of the delays.
func NewQueue(clock clock.WithTicker, what string, first, last time.Duration) *Queue {
	return &Queue{what: what, clock: clock, failures: map[string]failure{},
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
		TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Clock: clock})}
}

// Left is how long a name that failed is not to be tried, whatever else wakes it: a write before the one
// that failed may wake it itself.
func (q *Queue) Left(name string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, q.failures[name].until.Sub(q.clock.Now()))
}

// Observe takes the outcome of a try.
func (q *Queue) Observe(name string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, failed := q.failures[name]
	switch {
	case err == nil && failed:
		klog.InfoSDepth(1, "Succeeded again to "+q.what, "name", name)
		q.forget(name)
		return
	case err == nil:
		return
	case before.text != err.Error():
		klog.ErrorSDepth(1, err, "Failed to "+q.what+", retrying", "name", name)
	}
	delay := q.limiter.When(name)
	q.failures[name] = failure{err.Error(), q.clock.Now().Add(delay)}
	q.AddAfter(name, delay)
}

// Forget forgets the failures of a name.
func (q *Queue) Forget(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(name)
}

func (q *Queue) forget(name string) {
	delete(q.failures, name)
	q.limiter.Forget(name)
}

// Work syncs what is in the queue until ctx ends, so many at a time, so that one that is slow
// delays no other. do returns after how long to do it again at the latest; zero: not.
func (q *Queue) Work(ctx context.Context, workers int,
	do func(ctx context.Context, name string) (again time.Duration)) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				name, ends := q.Get()
				if ends {
					return
				}
				if again := do(ctx, name); again > 0 {
					q.AddAfter(name, again)
				}
				q.Done(name)
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	running.Wait()
}
