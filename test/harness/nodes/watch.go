package nodes

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// watched is a cache of objects that calls changed for each change. It is no informer: an informer's backoff of up to
// 30 seconds cannot be configured, and a test that restarts the API server would have to wait.
type watched struct {
	cache.Store
	changed func(key string)
	synced  chan struct{} // closed after the first list
	once    sync.Once
}

// watch follows a resource until Stop.
func (n *Nodes) watch(resource string, kind runtime.Object, changed func(key string)) *watched {
	w := &watched{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), changed: changed, synced: make(chan struct{})}
	source := cache.NewListWatchFromClient(n.admin.CoreV1().RESTClient(), resource, "", fields.Everything())
	reflector := cache.NewReflectorWithOptions(source, kind, w, cache.ReflectorOptions{
		Name:    "nodes/" + resource,
		Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 10, Cap: retryAtMost},
	})
	n.wg.Go(func() { reflector.RunWithContext(n.ctx) })
	return w
}

func (w *watched) Add(object any) error    { return w.update(object, w.Store.Add) }
func (w *watched) Update(object any) error { return w.update(object, w.Store.Update) }
func (w *watched) Delete(object any) error { return w.update(object, w.Store.Delete) }

func (w *watched) update(object any, change func(any) error) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	if err := change(object); err != nil {
		return err
	}
	w.changed(key)
	return nil
}

// Replace gets a list: the first one, or one after a lost watch.
func (w *watched) Replace(objects []any, version string) error {
	keys := map[string]bool{}
	for _, key := range w.ListKeys() {
		keys[key] = true
	}
	for _, object := range objects {
		key, err := cache.MetaNamespaceKeyFunc(object)
		if err != nil {
			return err
		}
		keys[key] = true
	}
	if err := w.Store.Replace(objects, version); err != nil {
		return err
	}
	w.once.Do(func() { close(w.synced) })
	for key := range keys {
		w.changed(key)
	}
	return nil
}

// get returns nil for an object that is not there.
func get[T runtime.Object](w *watched, key string) (object T, err error) {
	found, exists, err := w.GetByKey(key)
	if err != nil || !exists {
		return object, err
	}
	object, ok := found.(T)
	if !ok {
		return object, fmt.Errorf("%s is a %T", key, found)
	}
	return object, nil
}
