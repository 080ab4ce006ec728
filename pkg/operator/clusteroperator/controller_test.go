package clusteroperator

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/operator/watch"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// TestMain takes off a bound on how often errors are logged: it remembers when the
// last was, and synctest's clock begins long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

func TestSameJSON(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b any
		want bool
	}{
		{"nothing", nil, nil, true},
		{"nothing and none", nil, []Object{}, false},
		{"types that are written alike", []any{map[string]any{"resource": "namespaces", "name": "a", "group": ""}}, []Object{{Resource: "namespaces", Name: "a"}}, true},
		{"another value", []any{map[string]any{"resource": "namespaces", "name": "b", "group": ""}}, []Object{{Resource: "namespaces", Name: "a"}}, false},
		{"another field", []any{map[string]any{"resource": "namespaces", "name": "a", "group": "", "namespace": "c"}}, []Object{{Resource: "namespaces", Name: "a"}}, false},
		{"another order", []Object{{Name: "a"}, {Name: "b"}}, []Object{{Name: "b"}, {Name: "a"}}, false},
		{"numbers", map[string]any{"n": int64(1)}, map[string]any{"n": 1.0}, true},
	} {
		if got := sameJSON(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// stage is an API with the ClusterOperator, where a controller runs. It keeps what
// is written, and the test says when the watch shows it. The clock is synctest's.
type stage struct {
	*testing.T
	*Controller
	start  time.Time
	client *dynamicfake.FakeDynamicClient
	begin  func() // starts the controller

	mu     sync.Mutex
	writes []map[string]any
	at     []time.Duration
	fails  error
	look   Input
}

func onStage(t *testing.T, play func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &stage{T: t, start: time.Now(), look: Input{Configured: true, Targets: []Target{ok("a")}}}
		s.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "ClusterOperatorList"})
		s.client.PrependReactor("patch", "*", s.write)
		if err := s.client.Tracker().Create(resource, object(nil), ""); err != nil {
			t.Fatal(err)
		}
		sources := watch.NewSet(s.client)
		s.Controller = New(Options{Client: s.client, Sources: sources, Clock: clock.RealClock{}, Version: "1.2.3", Inertia: inertia, Look: func() (Input, []Object, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.look, []Object{{Resource: "namespaces", Name: "kms-health"}}, true
		}})
		defer sources.Wait()
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		s.begin = func() { running.Go(func() { s.Controller.Run(ctx) }) }
		play(s)
	})
}

func object(status any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": map[string]any{"name": Name}, "status": status}}
}

func (s *stage) write(action clienttesting.Action) (bool, runtime.Object, error) {
	var body map[string]any
	if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &body); err != nil {
		s.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes, s.at = append(s.writes, body), append(s.at, time.Since(s.start))
	return true, object(nil), s.fails
}

// show makes the watch tell a status.
func (s *stage) show(status any) {
	s.Helper()
	if err := s.client.Tracker().Update(resource, object(status), ""); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

// failing says what writes are answered from now on.
func (s *stage) failing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// set changes what there is to tell.
func (s *stage) set(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	s.Wake()
}

// until goes on to a time since the start, at once: the clock is synctest's.
func (s *stage) until(at time.Duration) {
	time.Sleep(time.Until(s.start.Add(at)))
	synctest.Wait()
}

// wants a number of writes since the start, and returns the status of the last.
func (s *stage) wants(n int, when string) map[string]any {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.writes) != n {
		s.Fatalf("%s: %d writes, want %d, at %v: %v", when, len(s.writes), n, s.at, s.writes)
	}
	return s.writes[n-1]["status"].(map[string]any)
}

// first is when the first write was, since the start.
func (s *stage) first() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[0]
}

func TestItIsWrittenOnce(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.until(time.Second)
		status := s.wants(1, "first")
		if !sameJSON(status["versions"], []any{map[string]any{"name": "operator", "version": "1.2.3"}}) {
			t.Errorf("versions %v", status["versions"])
		}
		s.show(status)
		for i := range 10 {
			s.until(time.Duration(i+2) * time.Second)
			s.Wake()
		}
		s.until(time.Hour)
		s.wants(1, "and never again")
	})
}

func TestWhatSomebodyElseChangesIsPutBack(t *testing.T) {
	for _, field := range []string{"conditions", "versions", "relatedObjects"} {
		t.Run(field, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.begin()
				s.until(time.Second)
				status := s.wants(1, "first")
				s.show(status)
				s.until(10 * time.Second)
				other := maps.Clone(status)
				delete(other, field)
				s.show(other)
				s.until(11 * time.Second)
				s.wants(2, "when it is gone")
			})
		})
	}
}

func TestItIsDegradedWhenTheInertiaIsOverThoughNothingHappens(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.until(time.Second)
		s.show(s.wants(1, "first"))
		s.set(func() {
			s.look.Targets = []Target{plugins("a", rollup.True, rollup.PluginError, "x", s.start.Add(time.Second))}
		})
		s.until(time.Second + inertia)
		s.wants(1, "before")
		s.until(time.Second + inertia + 1 + settle)
		s.show(s.wants(2, "when it is over"))
		s.until(time.Hour)
		s.wants(2, "and nothing more")
	})
}

// Somebody else writes while the watch may still lag behind our own write.
func TestWhatIsOverwrittenAtOnceIsWrittenAgainSoon(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.until(time.Second)
		status := s.wants(1, "first")
		s.show(status)
		s.show(map[string]any{})
		s.until(s.first() + lag - 1)
		s.wants(1, "while it may be from before our write")
		s.until(s.first() + lag + settle)
		s.wants(2, "when it cannot be")
	})
}

// What comes meanwhile finds what was written, though the watch does not show it.
func TestAWriteIsNotRepeatedWhileTheWatchLagsBehind(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		for i := range 18 { // each in a second of its own, or in the same
			s.until(time.Duration(i+2) * 100 * time.Millisecond)
			s.Wake()
		}
		s.until(s.first() + lag - 1)
		s.show(s.wants(1, "while the watch may lag"))
		s.until(time.Hour)
		s.wants(1, "when it shows it")
	})
}

// What is new is written at once, also a moment after a write.
func TestNewsAreWrittenThoughTheWatchLagsBehind(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.until(time.Second)
		s.wants(1, "first")
		s.set(func() { s.look.Targets = append(s.look.Targets, ok("b")) })
		s.until(time.Second + settle)
		s.show(s.wants(2, "a target more"))
		s.until(time.Hour)
		s.wants(2, "and nothing more")
	})
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.failing(errors.New("away"))
		s.begin()
		s.until(13 * time.Second)
		s.wants(3, "every five seconds")
		s.failing(nil)
		s.until(16 * time.Second)
		s.show(s.wants(4, "when it works"))
		s.until(time.Hour)
		s.wants(4, "and never again")
	})
}

func TestNothingIsWrittenWhereThereIsNoClusterOperator(t *testing.T) {
	onStage(t, func(s *stage) {
		if err := s.client.Tracker().Delete(resource, "", Name); err != nil {
			t.Fatal(err)
		}
		s.begin()
		s.until(time.Hour)
		s.mu.Lock()
		if len(s.writes) > 0 {
			t.Errorf("written: %v", s.writes)
		}
		s.mu.Unlock()
		if err := s.client.Tracker().Create(resource, object(nil), ""); err != nil {
			t.Fatal(err)
		}
		s.until(time.Hour + time.Second)
		s.wants(1, "when it is made")
	})
}
