package retry

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Queue has the names of what is to be synced. The clock is that of its delays.
type Queue struct {
	workqueue.TypedDelayingInterface[string]
}

// NewQueue makes a Queue.
func NewQueue(clock clock.WithTicker) Queue {
	return Queue{workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: clock})}
}

// Work syncs what is in the queue until ctx ends, so many at a time, so that one that is slow
// delays no other. do returns after how long to do it again at the latest; zero: not.
func (q Queue) Work(ctx context.Context, workers int, do func(ctx context.Context, name string) (again time.Duration)) {
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
