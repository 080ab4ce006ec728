// Package retry decides when a controller tries again what failed, and logs failures: a line for
// each change, not for each try.
package retry

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	limiter       workqueue.TypedRateLimiter[string]

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	text  string
	until time.Time // of the next try
}

// New makes a Backoff whose delays are from first to last. what is done, and the keys' name, are in the log.
func New(clock clock.PassiveClock, first, last time.Duration, what, keyName string) *Backoff {
	return &Backoff{what: what, keyName: keyName, clock: clock, failures: map[string]failure{},
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last)}
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
		b.forget(key)
		return 0
	}
	text := err.Error()
	if text != before.text {
		klog.ErrorSDepth(1, err, "Failed to "+b.what+", retrying", b.keyName, key)
	}
	delay := b.limiter.When(key)
	b.failures[key] = failure{text, b.clock.Now().Add(delay)}
	return delay
}

// Forget forgets a key that is gone.
func (b *Backoff) Forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(key)
}

func (b *Backoff) forget(key string) {
	delete(b.failures, key)
	b.limiter.Forget(key)
}

// OutageLog logs that requests of one kind to the API server fail: one line when they begin to
// fail, or fail for another reason, and one line when they succeed again. Its methods may be
// called concurrently.
type OutageLog struct {
	requests string

	mu     sync.Mutex
	reason string // why the last request failed, empty when it succeeded
}

// NewOutageLog returns an OutageLog that names its requests so.
func NewOutageLog(requests string) *OutageLog { return &OutageLog{requests: requests} }

// Observe takes the outcome of one request. An answer that depends on the object alone
// (not found, conflict, already exists) is a success. A request that its caller
// cancelled has no outcome.
func (l *OutageLog) Observe(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	reason := reasonOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == l.reason {
		return
	}
	l.reason = reason
	if reason == "" {
		klog.InfoS("Requests to the API server succeed again", "requests", l.requests)
		return
	}
	klog.ErrorS(err, "Requests to the API server fail", "requests", l.requests)
}

func reasonOf(err error) string {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ""
	case Away(err):
		return "away" // the texts of network errors differ from one to the next
	}
	return string(apierrors.ReasonForError(err))
}

// Away reports whether the API server could not be reached, or answered that it is
// starting, ending or overloaded. A request that it refused is not waited for.
func Away(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return err != nil
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests:
		return true
	}
	return false
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
