package informers

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestMain removes the bound on how often errors are logged: it keeps the time of the
// last one, and synctest's clock starts long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// all selects the fixture's ConfigMaps.
var all = Selection{Resource: configMaps, Namespace: "ns"}

// fixture is a fake API with ConfigMaps. The clock is synctest's.
type fixture struct {
	*testing.T
	ctx     context.Context
	start   time.Time
	client  *dynamicfake.FakeDynamicClient
	running sync.WaitGroup

	mu      sync.Mutex
	errs    []error // the answers to lists and watches; the last one stays
	lists   []time.Duration
	chosen  []clienttesting.ListRestrictions
	watches []apiwatch.Interface
}

// answer returns the next answer. The mutex is locked.
func (f *fixture) answer() error {
	next := f.errs[0]
	f.errs = f.errs[min(1, len(f.errs)-1):]
	return next
}

func withFixture(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fixture{T: t, ctx: ctx, start: time.Now(), errs: []error{nil}}
		f.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
			runtime.NewScheme(), map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"})
		f.client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lists = append(f.lists, time.Since(f.start))
			f.chosen = append(f.chosen, a.(clienttesting.ListAction).GetListRestrictions())
			err := f.answer()
			return err != nil, nil, err
		})
		f.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if err := f.answer(); err != nil {
				return true, nil, err
			}
			w, err := f.client.Tracker().Watch(configMaps, "ns")
			f.watches = append(f.watches, w)
			return true, w, err
		})
		defer f.running.Wait()
		defer cancel()
		test(f)
	})
}

func configMap(name, data, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "ns", "resourceVersion": version},
		"data":     map[string]any{"x": data}}}
}

// data returns the part of a ConfigMap that the tests' informers keep.
func data(o *unstructured.Unstructured) string {
	x, _, _ := unstructured.NestedString(o.Object, "data", "x")
	return x
}

func (f *fixture) create(name, data string) {
	f.Helper()
	if err := f.client.Tracker().Create(configMaps, configMap(name, data, "1"), "ns"); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
}

func (f *fixture) update(data, version string) {
	f.Helper()
	if err := f.client.Tracker().Update(configMaps, configMap("a", data, version), "ns"); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
}

// answers sets the answers to lists and watches from now on, and ends the open watches.
func (f *fixture) answers(errs ...error) {
	f.mu.Lock()
	f.errs = errs
	for _, w := range f.watches {
		w.Stop()
	}
	f.watches = nil
	f.mu.Unlock()
	synctest.Wait()
}

// until advances the clock to a time since the start.
func (f *fixture) until(at time.Duration) {
	time.Sleep(time.Until(f.start.Add(at)))
	synctest.Wait()
}

// listed returns the times of the lists since the start.
func (f *fixture) listed() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Duration(nil), f.lists...)
}

// wakes is a queue that counts.
type wakes struct{ n atomic.Int64 }

// Enqueue implements Queue.
func (w *wakes) Enqueue(string) { w.n.Add(1) }

// count returns the number of calls since the last count.
func (w *wakes) count() int64 {
	synctest.Wait()
	return w.n.Swap(0)
}

// run runs an informer of the ConfigMaps until the test ends or end is called.
func (f *fixture) run(more ...handler[string]) (s *Informer[string], w *wakes, end context.CancelFunc) {
	w = &wakes{}
	s = New(f.client, all, data, Key{Queue: w})
	s.handlers = append(s.handlers, more...)
	ctx, end := context.WithCancel(f.ctx)
	f.running.Go(func() { s.Run(ctx) })
	synctest.Wait()
	return s, w, end
}

var (
	errUnreachable = errors.New("connection refused")
	errRefused     = apierrors.NewInternalError(context.DeadlineExceeded) // for Secrets whose plugin is unhealthy
	errNotServed   = apierrors.NewNotFound(configMaps.GroupResource(), "")
)
