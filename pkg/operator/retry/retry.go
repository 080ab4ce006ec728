// Package retry decides when a controller tries again what failed, and logs failures: a line for
// each change, not for each try.
package retry

import (
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
	// Failed and Recovered are log messages; KeyName is the name of the key in them.
	Failed, Recovered, KeyName string

	clock   clock.PassiveClock
	limiter workqueue.TypedRateLimiter[string]

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	text  string
	until time.Time // of the next try
}

// New makes a Backoff whose delays are from first to last.
func New(clock clock.PassiveClock, first, last time.Duration) *Backoff {
	return &Backoff{
		clock:    clock,
		limiter:  workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
		failures: map[string]failure{},
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
			klog.InfoSDepth(1, b.Recovered, b.KeyName, key)
		}
		b.forget(key)
		return 0
	}
	text := err.Error()
	if text != before.text {
		klog.ErrorSDepth(1, err, b.Failed, b.KeyName, key)
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
