// Package source keeps copies of what the operator reads of the API server.
//
// A Source is a client-go informer for objects that may be absent or unreadable: an API that this cluster
// does not serve, a right that comes later, Secrets that cannot be listed while the KMS plugin that encrypts
// them is unhealthy. None of these delays another source: each is a value, or the reason why there is none.
package source

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/operator/retry"
)

// Delays between lists that fail. An unreachable API server is tried again
// soon: what happened meanwhile is wanted at once. One that answers with an error is
// tried with increasing delays.
const (
	firstUnreachable, lastUnreachable = 250 * time.Millisecond, time.Second
	firstRefused, lastRefused         = 100 * time.Millisecond, 9 * time.Second
	jitter                            = 0.2
)

// Selection is what a source follows.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: all, or a cluster-scoped resource
	Name      string // empty: all
	Labels    string // a label selector
}

// Source follows a selection, and keeps a T of each object: what is needed of it,
// and no more.
type Source[T any] struct {
	selection Selection
	resource  dynamic.ResourceInterface
	informer  cache.SharedIndexInformer
	server    *retry.OutageLog
	wakes     []wake[T]
	end       context.CancelFunc // set by start

	mu     sync.Mutex
	absent bool
	err    error
	since  time.Time // when errors with the reason of err began; zero while there are none
}

// wake is called after changes: of those from one T to another, where matters returns true.
type wake[T any] struct {
	do      func()
	matters func(before, after T) bool
}

// item is what an informer stores.
type item[T any] struct {
	metav1.ObjectMeta // of which only namespace and name are kept
	value             T
}

// New makes a source, which calls wakes after each change of a T, from a goroutine of its own: they
// must not block. It follows nothing before Run. server may be nil.
func New[T any](
	client dynamic.Interface, server *retry.OutageLog, selection Selection,
	convert func(*unstructured.Unstructured) T, wakes ...func(),
) *Source[T] {
	s := &Source[T]{
		selection: selection, server: server,
		resource: client.Resource(selection.Resource).Namespace(selection.Namespace),
	}
	for _, do := range wakes {
		s.wakeIf(do, func(T, T) bool { return true })
	}
	s.informer = cache.NewSharedIndexInformerWithOptions(
		listsFirst{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}},
		&unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{ObjectDescription: selection.Resource.Resource})
	must := func(err error) {
		if err != nil {
			panic(err) // only after the informer was started
		}
	}
	must(s.informer.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		return &item[T]{metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName()}, convert(u)}, nil
	}))
	// The source itself reports why a list or watch failed.
	must(s.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.wakeAll() },
		DeleteFunc: func(any) { s.wakeAll() },
		UpdateFunc: func(before, after any) {
			b, a := before.(*item[T]).value, after.(*item[T]).value
			if reflect.DeepEqual(b, a) { // a Node's heartbeat changes nothing here
				return
			}
			for _, w := range s.wakes {
				if w.matters(b, a) {
					w.do()
				}
			}
		},
	})
	must(err)
	return s
}

// wakeIf adds one who is woken by changes of an object that matter to it, and by all that
// New's are, but no other change. Call it before Run.
func (s *Source[T]) wakeIf(do func(), matters func(before, after T) bool) *Source[T] {
	s.wakes = append(s.wakes, wake[T]{do, matters})
	return s
}

func (s *Source[T]) wakeAll() {
	for _, w := range s.wakes {
		w.do()
	}
}

// listsFirst makes the informer list, and not stream, what there is: the answer to a
// list gives the reason of a failure.
type listsFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by client-go.
func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

// Run follows the selection until ctx ends.
func (s *Source[T]) Run(ctx context.Context) {
	go func() { // an empty list calls no handler
		select {
		case <-ctx.Done():
		case <-s.informer.HasSyncedChecker().Done():
			s.wakeAll()
		}
	}()
	// client-go logs each watch that the end of an API server breaks.
	s.informer.RunWithContext(klog.NewContext(ctx, klog.Background().V(3)))
}

// list lists until the API server has answered with objects. The informer's own
// backoff, of up to half a minute, would hide an API server that is back.
func (s *Source[T]) list(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
	s.choose(&o)
	err = s.try(ctx, func(error) bool { return false }, func() (err error) {
		list, err = s.resource.List(ctx, o)
		return err
	})
	return list, err
}

// watch watches, once the API server answers.
func (s *Source[T]) watch(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	s.choose(&o)
	err = s.try(ctx, answered, func() (err error) {
		w, err = s.resource.Watch(ctx, o)
		return err
	})
	return w, err
}

// try repeats a request until it succeeds, or fails with what the informer must know.
func (s *Source[T]) try(ctx context.Context, ends func(error) bool, request func() error) error {
	unreachable, refused := backoff(firstUnreachable, lastUnreachable), backoff(firstRefused, lastRefused)
	for {
		err := request()
		if ctx.Err() != nil || staleVersion(err) {
			return err
		}
		s.observe(err)
		if err == nil || ends(err) {
			return err
		}
		delay := unreachable
		if answered(err) {
			delay, unreachable = refused, backoff(firstUnreachable, lastUnreachable)
		} else {
			refused = backoff(firstRefused, lastRefused)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay.Step()):
		}
	}
}

func (s *Source[T]) choose(o *metav1.ListOptions) {
	o.LabelSelector = s.selection.Labels
	if s.selection.Name != "" {
		o.FieldSelector = "metadata.name=" + s.selection.Name
	}
}

func backoff(first, last time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Jitter: jitter, Steps: 20, Cap: last}
}

// answered reports whether an error is an API server's answer.
func answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

// staleVersion reports whether an error is about the resource version that the
// informer asked for, which then lists anew.
func staleVersion(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// observe keeps the outcome of the last list or watch, and logs what has changed.
func (s *Source[T]) observe(err error) {
	s.mu.Lock()
	before, wasAbsent := s.err, s.absent
	s.err, s.absent = err, apierrors.IsNotFound(err)
	changed := before == nil || apierrors.ReasonForError(before) != apierrors.ReasonForError(err)
	switch {
	case err == nil:
		s.since = time.Time{}
	case changed:
		s.since = time.Now()
	}
	s.mu.Unlock()
	if s.server != nil && (err == nil || !answered(err)) {
		s.server.Observe(err) // once for all sources
	}
	what := []any{
		"resource", s.selection.Resource.Resource, "namespace", s.selection.Namespace, "name", s.selection.Name,
	}
	switch {
	case err != nil && answered(err) && !apierrors.IsNotFound(err) && changed:
		klog.ErrorS(err, "Failed to read, retrying", what...)
	case err == nil && before != nil && answered(before) && !wasAbsent:
		klog.InfoS("Reading again", what...)
	}
	if (before == nil) != (err == nil) || wasAbsent != apierrors.IsNotFound(err) {
		s.wakeAll()
	}
}

// Known reports whether all objects were read at least once, or the kind is not served.
func (s *Source[T]) Known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent || s.informer.HasSynced()
}

// Err is why the last list or watch failed, nil when it did not, or when the kind is
// not served.
func (s *Source[T]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent {
		return nil
	}
	return s.err
}

// FailedFor is for how long lists or watches have failed with the reason of Err.
func (s *Source[T]) FailedFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}

// Get returns one object, by namespace (empty for a cluster-scoped one) and name.
func (s *Source[T]) Get(namespace, name string) (value T, exists bool) {
	if s.isAbsent() {
		return value, false
	}
	key := cache.NewObjectName(namespace, name).String()
	stored, exists, err := s.informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return value, false
	}
	return stored.(*item[T]).value, true
}

// All returns all objects, in no order.
func (s *Source[T]) All() []T {
	if s.isAbsent() {
		return nil
	}
	stored := s.informer.GetStore().List()
	all := make([]T, 0, len(stored))
	for _, obj := range stored {
		all = append(all, obj.(*item[T]).value)
	}
	return all
}

func (s *Source[T]) isAbsent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}
