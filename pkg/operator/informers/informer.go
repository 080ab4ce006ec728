// Package informers keeps copies of what the operator reads from the API server.
//
// An Informer follows objects that may be absent or unreadable: an API that this cluster does not serve, a right that
// is granted later, Secrets that cannot be listed while the KMS plugin that encrypts them is unhealthy. None of these
// delays another informer: each has a value, or the reason why it has none.
package informers

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
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
)

// backoff delays lists and watches after a failure. With client-go's own, of up to half a minute, the operator would
// notice the recovery of an API server or a plugin too late.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Cap: 4 * time.Second, Factor: 2, Jitter: 0.2, Steps: 10}

// pageSize is how many objects are listed at a time: a list takes nine times the memory of its JSON until it is stored.
const pageSize = 250

// listTimeout bounds a list after Relist, which must not wait for an API server whose etcd does not answer.
const listTimeout = 10 * time.Second

// Selection is what an informer follows.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: all, or a cluster-scoped resource
	Name      string // empty: all
	Labels    string // a label selector
	Fields    string // a field selector, where Name is empty
}

// Informer follows a selection. It keeps only a T of each object, with what is needed of it.
type Informer[T any] struct {
	selection Selection
	resource  dynamic.ResourceInterface
	convert   func(*unstructured.Unstructured) T
	trim      func(*unstructured.Unstructured) // set by inPages; nil: all are listed at once
	handlers  []handler[T]
	end       context.CancelFunc // set by start

	mu       sync.Mutex
	objects  map[cache.ObjectName]T // nil before the first list
	err      error
	relist   context.CancelFunc // nil before Run
	fromEtcd time.Time          // when Relist was called: the next list reads from etcd, not a cache; zero: not called
	listed   time.Time          // the same for the list that is about to be stored
	seen     time.Time          // the same for the last list that was stored
	since    time.Time          // when errors with the reason of err began; zero while there are none
	lasts    bool               // err lasted for AuthorizerWarmup by the last list or watch
}

// Source is an Informer of any type.
type Source interface {
	HasSynced() bool
	Problem() error
}

// AuthorizerWarmup is how long an API server that has just started may deny requests that it should allow: its
// authorizer has not read the roles yet.
const AuthorizerWarmup = 10 * time.Second

// Denied reports whether a request was denied. Retries do not help until a right is granted.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// Queue is a controller's. A change only adds a key to it.
type Queue interface{ Enqueue(name string) }

// Key is what an informer enqueues after a change.
type Key struct {
	Queue Queue
	Name  string // of an API server, or syncqueue.All
}

// handler enqueues a key after additions and deletions, and after a change of a T if matters is nil or returns true.
type handler[T any] struct {
	Key
	matters func(before, after T) bool
}

// New returns an informer that enqueues keys after each change of a T. It follows nothing before Run.
func New[T any](
	client dynamic.Interface, selection Selection, convert func(*unstructured.Unstructured) T, keys ...Key,
) *Informer[T] {
	s := &Informer[T]{selection: selection, convert: convert,
		resource: client.Resource(selection.Resource).Namespace(selection.Namespace)}
	for _, key := range keys {
		s.handlers = append(s.handlers, handler[T]{Key: key})
	}
	return s
}

// inPages makes the informer list in pages, for objects that are large and many. trim drops from each page's objects
// what convert does not need.
func (s *Informer[T]) inPages(trim func(*unstructured.Unstructured)) *Informer[T] {
	s.trim = trim
	return s
}

// start runs the informer until ctx ends or end is called.
func (s *Informer[T]) start(ctx context.Context) *Informer[T] {
	ctx, s.end = context.WithCancel(ctx)
	go s.Run(ctx)
	return s
}

// Run follows the selection until ctx ends.
func (s *Informer[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		following, stop := context.WithCancel(ctx)
		s.mu.Lock()
		s.relist = stop
		s.mu.Unlock()
		reflector := cache.NewReflectorWithOptions(
			listsFirst{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}},
			&unstructured.Unstructured{}, store[T]{s}, cache.ReflectorOptions{Backoff: &backoff})
		if s.trim != nil {
			reflector.WatchListPageSize = pageSize
		}
		reflector.RunWithContext(klog.NewContext(following, logr.Discard())) // it would log each error; observe logs changes
		stop()
	}
}

// Relist lists all objects again, from etcd, and watches from there, unless such a list is pending. Handlers are
// enqueued when the list is stored.
func (s *Informer[T]) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relist != nil && s.fromEtcd.IsZero() {
		s.fromEtcd = time.Now()
		s.relist()
	}
}

// Relisted returns when Relist was called for the last list that was stored; zero: for none.
func (s *Informer[T]) Relisted() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// listsFirst makes the reflector list the objects instead of streaming them: the answer to a list has the reason of a
// failure.
type listsFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by client-go.
func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

func (s *Informer[T]) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.choose(&o)
	s.mu.Lock()
	fromEtcd := s.fromEtcd
	s.mu.Unlock()
	request := ctx
	if !fromEtcd.IsZero() {
		o.ResourceVersion = ""
		var cancel context.CancelFunc
		request, cancel = context.WithTimeout(ctx, listTimeout)
		defer cancel()
	}
	paged := s.trim != nil && o.Limit > 0 // 0: all at once, since a page has expired
	if paged {
		o.ResourceVersion = "" // for version 0 an API server ignores the limit
	}
	list, err := s.resource.List(request, o)
	for i := 0; paged && err == nil && i < len(list.Items); i++ {
		s.trim(&list.Items[i])
	}
	if s.observe(ctx, err); err == nil && !fromEtcd.IsZero() {
		s.mu.Lock()
		s.fromEtcd, s.listed = time.Time{}, fromEtcd
		s.mu.Unlock()
	}
	return list, err
}

func (s *Informer[T]) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.choose(&o)
	w, err := s.resource.Watch(ctx, o)
	s.observe(ctx, err)
	return w, err
}

func (s *Informer[T]) choose(o *metav1.ListOptions) {
	o.LabelSelector, o.FieldSelector = s.selection.Labels, s.selection.Fields
	if s.selection.Name != "" {
		o.FieldSelector = "metadata.name=" + s.selection.Name
	}
}

// observe keeps the outcome of a list or watch, and logs when an API server's answer changes. A kind that is not
// served has no objects. An error about the requested resourceVersion is ignored: the reflector lists again.
func (s *Informer[T]) observe(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return
	case apierrors.IsNotFound(err):
		_ = store[T]{s}.Replace(nil, "")
		err = nil
	}
	s.mu.Lock()
	before, problem := s.err, s.problem()
	s.err = err
	changed := before == nil || apierrors.ReasonForError(before) != apierrors.ReasonForError(err)
	switch {
	case err == nil:
		s.since = time.Time{}
	case changed:
		s.since = time.Now()
	}
	s.lasts = err != nil && time.Since(s.since) >= AuthorizerWarmup
	turned := (before == nil) != (err == nil) || (problem == nil) != (s.problem() == nil)
	s.mu.Unlock()
	what := []any{"resource", s.selection.Resource.Resource, "namespace", s.selection.Namespace,
		"name", s.selection.Name}
	switch {
	case err != nil && changed && Answered(err):
		klog.ErrorS(err, "Failed to read, retrying", what...)
	case err == nil && Answered(before):
		klog.InfoS("Informer recovered", what...)
	}
	if turned {
		s.enqueue(func(handler[T]) bool { return true })
	}
}

// Answered reports whether an error is an API server's answer.
func Answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

// HasSynced reports whether all objects were read at least once, or the kind is not served.
func (s *Informer[T]) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects != nil
}

// Err returns why the last list or watch failed; nil if it did not, or if the kind is not served.
func (s *Informer[T]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Problem returns why the objects are not known: because lists or watches fail, for AuthorizerWarmup at least. After
// the first list only a denial counts; else the last known state is used. Handlers are enqueued when it begins.
func (s *Informer[T]) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem()
}

func (s *Informer[T]) problem() error {
	if s.lasts && (s.objects == nil || Denied(s.err)) {
		return s.err
	}
	return nil
}

// Get returns one object, by namespace (empty for a cluster-scoped one) and name.
func (s *Informer[T]) Get(namespace, name string) (value T, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, exists = s.objects[cache.NewObjectName(namespace, name)]
	return value, exists
}

// List returns all objects, in no order; never nil.
func (s *Informer[T]) List() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(make([]T, 0, len(s.objects)), maps.Values(s.objects))
}

// store is the store of an Informer's reflector.
type store[T any] struct{ *Informer[T] }

// Add implements cache.ReflectorStore, as do the other methods.
func (s store[T]) Add(obj any) error { return s.Update(obj) }

// Update adds or replaces an object.
func (s store[T]) Update(obj any) error {
	key, after := s.read(obj)
	s.mu.Lock()
	before, existed := s.objects[key]
	s.objects[key] = after
	s.mu.Unlock()
	s.enqueue(func(h handler[T]) bool { return !existed || h.concerns(before, after) })
	return nil
}

// Delete removes an object.
func (s store[T]) Delete(obj any) error {
	s.mu.Lock()
	delete(s.objects, cache.MetaObjectToName(obj.(metav1.Object)))
	s.mu.Unlock()
	s.enqueue(func(handler[T]) bool { return true })
	return nil
}

// Replace sets all objects. The first time, and after a Relist, it enqueues in any case.
func (s store[T]) Replace(all []any, _ string) error {
	after := map[cache.ObjectName]T{}
	for _, obj := range all {
		key, value := s.read(obj)
		after[key] = value
	}
	s.mu.Lock()
	before := s.objects
	s.objects = after
	if !s.listed.IsZero() {
		before, s.seen, s.listed = nil, s.listed, time.Time{}
	}
	s.mu.Unlock()
	s.enqueue(func(h handler[T]) bool {
		return before == nil || !maps.EqualFunc(before, after, func(b, a T) bool { return !h.concerns(b, a) })
	})
	return nil
}

// Resync does nothing.
func (s store[T]) Resync() error { return nil }

func (s store[T]) read(obj any) (cache.ObjectName, T) {
	o := obj.(*unstructured.Unstructured) // the reflector lets nothing else through
	return cache.MetaObjectToName(o), s.convert(o)
}

// enqueue enqueues the keys of the handlers that a change concerns.
func (s *Informer[T]) enqueue(concerned func(handler[T]) bool) {
	for _, h := range s.handlers {
		if concerned(h) {
			h.Queue.Enqueue(h.Name)
		}
	}
}

// concerns reports whether a T changed in what matters. A Node's heartbeat does not change it.
func (h handler[T]) concerns(before, after T) bool {
	return !reflect.DeepEqual(before, after) && (h.matters == nil || h.matters(before, after))
}
