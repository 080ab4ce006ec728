// Package syncqueue is the queue of a controller: client-go's, with one backoff for all controllers. It logs each
// change of a failure, not each attempt.
package syncqueue

import (
	"context"
	"fmt"
	gosync "sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/logging"
)

const (
	// CoalescePeriod is how long a sync waits for related changes.
	CoalescePeriod = 20 * time.Millisecond
	// A name whose sync failed is synced again after FirstRetry, each time after twice as long, up to LastRetry.
	FirstRetry, LastRetry = 250 * time.Millisecond, 10 * time.Second
)

// All is the key of a change that concerns every API server. Its sync enqueues all names.
const All = ""

// Queue has the names that are to be synced.
type Queue struct {
	workqueue.TypedDelayingInterface[string]
	what    string
	limiter workqueue.TypedRateLimiter[string]

	mu       gosync.Mutex
	failures map[string]failure
}

type failure struct {
	cause  string
	logged time.Time // when the cause was last logged
	until  time.Time // the time of the next attempt
}

// New returns a Queue. what names, in log messages, what a sync does.
func New(what string) *Queue {
	return &Queue{what: what, failures: map[string]failure{},
		limiter:                workqueue.NewTypedItemExponentialFailureRateLimiter[string](FirstRetry, LastRetry),
		TypedDelayingInterface: workqueue.NewTypedDelayingQueue[string]()}
}

// Enqueue syncs a name soon.
func (q *Queue) Enqueue(name string) { q.AddAfter(name, CoalescePeriod) }

// Left returns the remaining backoff of a name that failed. A controller skips its writes until then, because its own
// write before the one that failed may have enqueued the name.
func (q *Queue) Left(name string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, time.Until(q.failures[name].until))
}

// Observe takes the outcome of a sync. After an error it syncs the name again after the backoff. It logs an error if
// its cause is new or was not logged for logging.CausePeriod, and a recovery.
func (q *Queue) Observe(name string, err error) {
	if err == nil {
		if q.Forget(name) {
			klog.InfoSDepth(1, "Recovered: "+q.what, "name", name)
		}
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	before, failed := q.failures[name]
	cause, now := logging.Cause(err.Error()), time.Now()
	if !failed || before.cause != cause || now.Sub(before.logged) >= logging.CausePeriod {
		before.logged = now
		klog.ErrorSDepth(1, err, "Failed to "+q.what+", retrying", "name", name)
	}
	delay := q.limiter.When(name)
	q.failures[name] = failure{cause, before.logged, now.Add(delay)}
	q.AddAfter(name, delay)
}

// Forget forgets the failures of a name, and reports whether there were any.
func (q *Queue) Forget(name string) (failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, failed = q.failures[name]
	delete(q.failures, name)
	q.limiter.Forget(name)
	return failed
}

// Work syncs the names in the queue until ctx ends, workers of them at a time, so that a slow one does not delay the
// others. sync returns after how long to sync the name again at the latest; zero: not again. A panic is an error.
func (q *Queue) Work(ctx context.Context, workers int,
	sync func(ctx context.Context, name string) (again time.Duration)) {
	var running gosync.WaitGroup
	for range workers {
		running.Go(func() {
			for name, ends := q.Get(); !ends; name, ends = q.Get() {
				q.process(ctx, name, sync)
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	running.Wait()
}

func (q *Queue) process(ctx context.Context, name string, sync func(context.Context, string) time.Duration) {
	defer q.Done(name)
	// utilruntime.HandleCrash would end the process, and with it the syncs of all API servers.
	defer func() {
		if r := recover(); r != nil {
			for _, report := range utilruntime.PanicHandlers {
				report(ctx, r)
			}
			q.Observe(name, fmt.Errorf("panic: %v", r))
		}
	}()
	if again := sync(ctx, name); again > 0 {
		q.AddAfter(name, again)
	}
}
