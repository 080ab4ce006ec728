package watch

import (
	"context"
	"os"
	"sync"
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

// TestMain takes off a bound on how often errors are logged: it remembers when the
// last was, and synctest's clock begins long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// all is a selection of the stage's ConfigMaps.
var all = Selection{Resource: configMaps, Namespace: "ns"}

// stage is an API with ConfigMaps, and a Set that watches it. The clock is
// synctest's, and starts with the test.
type stage struct {
	*testing.T
	*Set
	ctx    context.Context
	start  time.Time
	client *dynamicfake.FakeDynamicClient

	mu      sync.Mutex
	answer  func() error // to lists, and to watches but for times
	lists   []time.Duration
	chosen  []clienttesting.ListRestrictions
	watched []apiwatch.Interface
}

func onStage(t *testing.T, play func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &stage{T: t, ctx: ctx, start: time.Now(), answer: func() error { return nil }}
		s.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"})
		s.client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lists, s.chosen = append(s.lists, time.Since(s.start)), append(s.chosen, a.(clienttesting.ListAction).GetListRestrictions())
			err := s.answer()
			return err != nil, nil, err
		})
		s.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := s.answer(); err != nil {
				return true, nil, err
			}
			w, err := s.client.Tracker().Watch(configMaps, "ns")
			s.watched = append(s.watched, w)
			return true, w, err
		})
		s.Set = NewSet(s.client)
		defer s.Wait()
		defer cancel()
		play(s)
	})
}

func configMap(name, data, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "ns", "resourceVersion": version}, "data": map[string]any{"x": data}}}
}

// data is what the tests keep of a ConfigMap.
func data(o *unstructured.Unstructured) string {
	x, _, _ := unstructured.NestedString(o.Object, "data", "x")
	return x
}

func (s *stage) create(name, data string) {
	s.Helper()
	if err := s.client.Tracker().Create(configMaps, configMap(name, data, "1"), "ns"); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

func (s *stage) update(data, version string) {
	s.Helper()
	if err := s.client.Tracker().Update(configMaps, configMap("a", data, version), "ns"); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

// answers says what lists and watches are answered from now on, and ends those that
// go on.
func (s *stage) answers(err func() error) {
	s.mu.Lock()
	s.answer = err
	for _, w := range s.watched {
		w.Stop()
	}
	s.watched = nil
	s.mu.Unlock()
	synctest.Wait()
}

// until goes on to a time since the start, at once: the clock is synctest's.
func (s *stage) until(at time.Duration) {
	time.Sleep(time.Until(s.start.Add(at)))
	synctest.Wait()
}

// listed is when there was a list, since the start.
func (s *stage) listed() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.lists...)
}

// viewer looks through a view.
type viewer struct {
	*View
	mu    sync.Mutex
	waken int
}

func (s *stage) viewer() *viewer {
	v := &viewer{}
	v.View = s.View(v.wakeUp)
	return v
}

func (v *viewer) wakeUp() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waken++
}

// woken is how often it was woken since it last asked.
func (v *viewer) woken() int {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.waken
	v.waken = 0
	return n
}

// look makes a pass that asks for selections, and returns the last one's source.
func (s *stage) look(v *viewer, selections ...Selection) (source *Source[string]) {
	v.Begin()
	defer v.End()
	for _, selection := range selections {
		source = Follow(s.ctx, v.View, selection, data, nil)
	}
	return source
}

func refused() error {
	return apierrors.NewInternalError(context.DeadlineExceeded) // as of a Secret whose plugin is ill
}

func notServed() error { return apierrors.NewNotFound(configMaps.GroupResource(), "") }
