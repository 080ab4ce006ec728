// Package retry decides when a controller tries again what failed, and logs failures: a line for
// each change, not for each try.
package retry

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Backoff delays retries by key: each delay is twice the one before. A failure is logged
// once, until its text is another, and so is its end. Its methods may be called
// concurrently.
type Backoff struct {
	what, keyName string // in the log
	clock         clock.PassiveClock
	first, last   time.Duration

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	text  string
	delay time.Duration
	until time.Time // of the next try
}

// New makes a Backoff whose delays are from first to last. what is done, and the keys' name, are in the log.
func New(clock clock.PassiveClock, first, last time.Duration, what, keyName string) *Backoff {
	return &Backoff{
		what: what, keyName: keyName, clock: clock, first: first, last: last, failures: map[string]failure{},
	}
}

// Left is how long a key that failed is not to be tried, whatever else happens to it.
func (b *Backoff) Left(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.failures[key].until.Sub(b.clock.Now()))
}

// Observe takes the outcome of a try. It returns the delay of the next one; zero: it
// succeeded.
func (b *Backoff) Observe(key string, err error) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, had := b.failures[key]
	if err == nil {
		if had {
			klog.InfoSDepth(1, "Succeeded again to "+b.what, b.keyName, key)
		}
		delete(b.failures, key)
		return 0
	}
	if err.Error() != before.text {
		klog.ErrorSDepth(1, err, "Failed to "+b.what+", retrying", b.keyName, key)
	}
	delay := min(b.last, max(b.first, 2*before.delay))
	b.failures[key] = failure{err.Error(), delay, b.clock.Now().Add(delay)}
	return delay
}

// Forget forgets a key that is gone.
func (b *Backoff) Forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, key)
}

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
