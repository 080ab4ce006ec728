// Package watch keeps what a list and a watch tell, for sources that may be
// absent: an API that this cluster does not serve, a namespace or a right that
// comes later, Secrets and ConfigMaps that cannot be listed while the KMS plugin
// that encrypts them is ill. None of these holds up another source.
package watch

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Backoff after a list or watch that failed. An API server that is away is asked
// again soon: what happened meanwhile is to be told at once. One that is there, and
// answers with an error, is asked ever less.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4, Cap: time.Second}

const (
	firstPatience = 100 * time.Millisecond
	lastPatience  = 9 * time.Second
)

// Whole is a conversion that keeps all of an object but its history.
func Whole(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetManagedFields(nil)
	return o
}

// Selection is what a source follows.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: all, or a resource of the cluster
	Name      string // empty: all
	Labels    string // a label selector
}

// Source follows a selection, and keeps a T of each object: what is needed of it,
// and no more.
type Source[T any] struct {
	reflector *cache.Reflector
	convert   func(*unstructured.Unstructured) T
	changed   func()

	refused int // answers that were errors, one after another; the reflector's goroutine's

	mu     sync.Mutex
	items  map[string]T // by namespace/name
	synced bool
	absent bool
	err    error
}

// New makes a source. changed is called after every change, from a goroutine of
// the source's own; it must not block.
func New[T any](client dynamic.Interface, selection Selection, convert func(*unstructured.Unstructured) T, changed func()) *Source[T] {
	s := &Source[T]{convert: convert, changed: changed, items: map[string]T{}}
	resource := client.Resource(selection.Resource).Namespace(selection.Namespace)
	choose := func(o *metav1.ListOptions) {
		o.LabelSelector = selection.Labels
		if selection.Name != "" {
			o.FieldSelector = "metadata.name=" + selection.Name
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			choose(&o)
			list, err := resource.List(ctx, o)
			s.heard(err)
			if err != nil {
				s.bePatient(ctx, err)
				return nil, err
			}
			s.refused = 0
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			choose(&o)
			w, err := resource.Watch(ctx, o)
			s.heard(err)
			return w, err
		},
	}
	again := backoff
	// Lists, not streams: the answer to a list says why there is none.
	s.reflector = cache.NewReflectorWithOptions(listing{lw}, nil, s, cache.ReflectorOptions{
		Name: selection.Resource.Resource, Backoff: &again,
	})
	return s
}

type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// Run follows the selection until ctx ends.
func (s *Source[T]) Run(ctx context.Context) { s.reflector.RunWithContext(ctx) }

// heard keeps how the last list or watch began.
func (s *Source[T]) heard(err error) {
	s.mu.Lock()
	was, known := s.err, s.synced || s.absent
	s.err = err
	if s.absent = apierrors.IsNotFound(err); s.absent {
		clear(s.items)
	}
	now := s.synced || s.absent
	s.mu.Unlock()
	if known != now || (was == nil) != (err == nil) {
		s.changed()
	}
}

// bePatient waits, longer each time, after an answer that was an error.
func (s *Source[T]) bePatient(ctx context.Context, err error) {
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		s.refused = 0
		return // there was no answer
	}
	timer := time.NewTimer(min(lastPatience, firstPatience<<min(s.refused, 10)))
	defer timer.Stop()
	s.refused++
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Known says whether the source has told all there is at least once since it was
// made, or that its kind is not served here.
func (s *Source[T]) Known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced || s.absent
}

// Err is why the last list or watch failed, nil when it did not.
func (s *Source[T]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent {
		return nil
	}
	return s.err
}

// Get returns one object, by namespace (empty for a cluster's) and name.
func (s *Source[T]) Get(namespace, name string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, ok := s.items[namespace+"/"+name]
	return item, ok
}

// All returns what there is, in no order.
func (s *Source[T]) All() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]T, 0, len(s.items))
	for _, item := range s.items {
		all = append(all, item)
	}
	return all
}

// What follows is how a reflector fills the source.

// Add keeps a new object.
func (s *Source[T]) Add(obj any) error { return s.Update(obj) }

// Update keeps a changed object.
func (s *Source[T]) Update(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	item := s.convert(u)
	s.mu.Lock()
	was, had := s.items[key(u)]
	s.items[key(u)] = item
	s.mu.Unlock()
	if !had || !reflect.DeepEqual(was, item) { // a Node's heartbeat is no news
		s.changed()
	}
	return nil
}

// Delete forgets an object.
func (s *Source[T]) Delete(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s.mu.Lock()
	delete(s.items, key(u))
	s.mu.Unlock()
	s.changed()
	return nil
}

// Replace keeps the objects of a whole list.
func (s *Source[T]) Replace(list []any, _ string) error {
	items := make(map[string]T, len(list))
	for _, obj := range list {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			items[key(u)] = s.convert(u)
		}
	}
	s.mu.Lock()
	s.items, s.synced, s.absent, s.err = items, true, false, nil
	s.mu.Unlock()
	s.changed()
	return nil
}

// Resync is nothing here.
func (s *Source[T]) Resync() error { return nil }

func key(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + u.GetName() }
