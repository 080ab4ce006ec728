package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// observer keeps what the watch of an operator resource has shown.
type observer struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	version  string
	versions int64                      // the number of versions seen
	status   map[string]contract.Status // of the first plugin, by node
}

func newObserver() *observer {
	return &observer{changed: make(chan struct{}), status: map[string]contract.Status{}}
}

// observe records a version of the object.
func (o *observer) observe(object *unstructured.Unstructured) *operatorstatus.Status {
	read := operatorstatus.Read(object)
	o.mu.Lock()
	defer o.mu.Unlock()
	if read.Version == o.version {
		return read // listed again
	}
	o.version = read.Version
	o.versions++
	for _, report := range read.Reports {
		if len(report.Entries) > 0 {
			o.status[report.Node] = report.Entries[0].Status
		}
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return read
}

// count returns the number of versions seen.
func (o *observer) count() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.versions
}

// await waits until holds returns true. holds may read the observer.
func (o *observer) await(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	end := time.After(limit)
	for {
		o.mu.Lock()
		done, changed := holds(), o.changed
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-end:
			return fmt.Errorf("not within %s: %s", limit, what)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
