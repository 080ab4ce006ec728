// Package retry is the queue of a controller: client-go's, with a line in the log for each change of a
// failure, not for each try.
package retry

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
	workqueue.TypedRateLimitingInterface[string]
	what   string
	logged sync.Map // the text of the last failure, by name
}

// NewQueue makes a Queue in which a name that failed comes back after first to last, each time after twice
// as long. what is done to it is in the log. The clock is that of the delays.
func NewQueue(clock clock.WithTicker, what string, first, last time.Duration) *Queue {
	return &Queue{what: what, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: clock})}
}

// Observe takes the outcome of a try.
func (q *Queue) Observe(name string, err error) {
	if err == nil {
		if _, failed := q.logged.Load(name); failed {
			klog.InfoSDepth(1, "Succeeded again to "+q.what, "name", name)
		}
		q.Forget(name)
		return
	}
	if before, _ := q.logged.Swap(name, err.Error()); before != err.Error() {
		klog.ErrorSDepth(1, err, "Failed to "+q.what+", retrying", "name", name)
	}
	q.AddRateLimited(name)
}

// Forget forgets the failures of a name.
func (q *Queue) Forget(name string) {
	q.logged.Delete(name)
	q.TypedRateLimitingInterface.Forget(name)
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
