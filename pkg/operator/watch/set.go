package watch

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Set shares sources: a selection is watched once, however many look at it, and
// as long as somebody does.
type Set struct {
	client dynamic.Interface

	mu         sync.Mutex
	running    map[string]*shared
	goroutines sync.WaitGroup
}

type shared struct {
	source any
	end    context.CancelFunc
	wakes  map[*View]func()
}

// NewSet makes a Set.
func NewSet(client dynamic.Interface) *Set {
	return &Set{client: client, running: map[string]*shared{}}
}

// Wait returns when every source has ended: after the contexts of all views.
func (s *Set) Wait() { s.goroutines.Wait() }

// View is what one looks at, pass by pass: a source that a pass asks for is
// started, and one that it no longer asks for is let go. It is for one goroutine.
type View struct {
	set   *Set
	wake  func()
	asked map[string]bool
}

// View makes a view. wake is called when a source changes, unless Follow says
// otherwise; it must not block.
func (s *Set) View(wake func()) *View { return &View{set: s, wake: wake} }

// Begin begins a pass.
func (v *View) Begin() { v.asked = map[string]bool{} }

// End ends a pass.
func (v *View) End() {
	v.set.mu.Lock()
	defer v.set.mu.Unlock()
	for key, r := range v.set.running {
		if _, looked := r.wakes[v]; !looked || v.asked[key] {
			continue
		}
		delete(r.wakes, v)
		if len(r.wakes) == 0 {
			r.end()
			delete(v.set.running, key)
		}
	}
}

// Follow returns the source of a selection, which runs until nobody looks or ctx
// of the first who did ends. wake is called when it changes; nil stands for the
// view's. What else the conversion depends on is in variant.
func Follow[T any](ctx context.Context, v *View, selection Selection, convert func(*unstructured.Unstructured) T, wake func(), variant ...any) *Source[T] {
	key := fmt.Sprintf("%v %T %v", selection, *new(T), variant)
	if wake == nil {
		wake = v.wake
	}
	v.asked[key] = true
	v.set.mu.Lock()
	defer v.set.mu.Unlock()
	r, ok := v.set.running[key]
	if !ok {
		r = &shared{wakes: map[*View]func(){}}
		source := New(v.set.client, selection, convert, func() { v.set.changed(r) })
		ctx, end := context.WithCancel(ctx)
		r.source, r.end = source, end
		v.set.running[key] = r
		v.set.goroutines.Go(func() { source.Run(ctx) })
	}
	if _, looked := r.wakes[v]; !looked {
		r.wakes[v] = wake
	}
	return r.source.(*Source[T])
}

func (s *Set) changed(r *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range r.wakes {
		wake()
	}
}
