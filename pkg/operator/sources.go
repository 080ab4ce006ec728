package operator

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/operator/watch"
)

// sources are the watches that the last pass looked at. One that a pass asks for
// is started, and one that it no longer asks for is ended.
type sources struct {
	running map[string]*running
}

type running struct {
	source any
	end    context.CancelFunc
	asked  bool
}

// follow returns the source of a selection. wake is called when it changes. What
// else the conversion depends on is in variant.
func follow[T any](ctx context.Context, o *Operator, selection watch.Selection, convert func(*unstructured.Unstructured) T, wake func(), variant ...any) *watch.Source[T] {
	key := fmt.Sprintf("%v %T %v", selection, *new(T), variant)
	r, ok := o.sources.running[key]
	if !ok {
		source := watch.New(o.Client, selection, convert, wake)
		ctx, end := context.WithCancel(ctx)
		r = &running{source: source, end: end}
		o.sources.running[key] = r
		o.goroutines.Go(func() { source.Run(ctx) })
	}
	r.asked = true
	return r.source.(*watch.Source[T])
}

// begin and end frame a pass.
func (s *sources) begin() {
	for _, r := range s.running {
		r.asked = false
	}
}

func (s *sources) end() {
	for key, r := range s.running {
		if !r.asked {
			r.end()
			delete(s.running, key)
		}
	}
}
