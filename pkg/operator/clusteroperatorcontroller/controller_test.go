package clusteroperatorcontroller

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/must"
)

// operatorFixture is a fake API with the ClusterOperator, and a controller. It records the writes. The clock is
// synctest's.
type operatorFixture struct {
	*testing.T
	*Controller
	start  time.Time
	client *dynamicfake.FakeDynamicClient
	begin  func() // starts the controller

	parts  // its mutex is for all of these
	writes []map[string]any
}

func withOperatorFixture(t *testing.T, test func(s *operatorFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &operatorFixture{T: t, start: time.Now()}
		s.targets, s.config = []Target{ok("a")}, &v1alpha1.OperatorConfiguration{}
		s.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{informers.ClusterOperators: "ClusterOperatorList"})
		s.client.PrependReactor("patch", "*", s.write)
		must.Succeed(t, s.client.Tracker().Create(informers.ClusterOperators, clusterOperator(nil), ""))
		s.Controller = &Controller{Client: s.client, Now: time.Now, Version: "1.2.3", OpenShift: true,
			Inertia: inertia, Queue: syncqueue.New("write"), Config: s, Reporters: s, Health: s}
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		s.begin = func() { running.Go(func() { s.Controller.Run(ctx) }) }
		test(s)
	})
}

func clusterOperator(status any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1",
		"kind": "ClusterOperator", "metadata": map[string]any{"name": object.Name}, "status": status}}
}

func (s *operatorFixture) write(action clienttesting.Action) (bool, runtime.Object, error) {
	var body map[string]any
	if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &body); err != nil {
		s.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, body)
	o := clusterOperator(body["status"])
	return true, o, s.client.Tracker().Update(informers.ClusterOperators, o, "")
}

// show changes the status, as another client does.
func (s *operatorFixture) show(status any) {
	s.Helper()
	must.Succeed(s, s.client.Tracker().Update(informers.ClusterOperators, clusterOperator(status), ""))
}

// set changes the target of the next evaluation.
func (s *operatorFixture) set(target Target) {
	s.mu.Lock()
	s.targets = []Target{target}
	s.mu.Unlock()
	s.Queue.Enqueue(object.Name)
}

// until advances the clock to a time since the start.
func (s *operatorFixture) until(at time.Duration) {
	time.Sleep(time.Until(s.start.Add(at)))
	synctest.Wait()
}

// wantWrites requires a number of writes since the start, and returns the last status; nil: none.
func (s *operatorFixture) wantWrites(n int, when string) map[string]any {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.writes) != n {
		s.Fatalf("%s: %d writes, want %d: %v", when, len(s.writes), n, s.writes)
	}
	if n == 0 {
		return nil
	}
	return s.writes[n-1]["status"].(map[string]any)
}

func TestStatusIsWrittenOnce(t *testing.T) {
	withOperatorFixture(t, func(s *operatorFixture) {
		s.begin()
		s.until(time.Second)
		status := s.wantWrites(1, "first")
		if !reflect.DeepEqual(status["versions"], []any{map[string]any{"name": "operator", "version": "1.2.3"}}) {
			t.Errorf("versions %v", status["versions"])
		}
		for i := range 10 {
			s.until(time.Duration(i+2) * time.Second)
			s.Queue.Enqueue(object.Name)
		}
		s.until(time.Hour)
		s.wantWrites(1, "and never again")
	})
}

// The cluster-version-operator waits for the version, so it must not change before the new reporters are rolled out.
func TestVersionIsThatOfReportersThatAreRolledOut(t *testing.T) {
	withOperatorFixture(t, func(s *operatorFixture) {
		before := []any{map[string]any{"name": "operator", "version": "1.2.2"}}
		s.show(map[string]any{"versions": before})
		s.set(delivers("a", contract.Progressing, "1 of 3"))
		s.begin()
		s.until(time.Second)
		status := s.wantWrites(1, "while reporters are rolled out")
		if !reflect.DeepEqual(status["versions"], before) {
			t.Errorf("versions %v", status["versions"])
		}
		s.set(ok("a"))
		s.until(2 * time.Second)
		if status = s.wantWrites(2, "when they are"); reflect.DeepEqual(status["versions"], before) {
			t.Errorf("versions %v", status["versions"])
		}
	})
}

func TestChangesOfOthersAreReverted(t *testing.T) {
	for _, field := range []string{"conditions", "versions", "relatedObjects"} {
		t.Run(field, func(t *testing.T) {
			withOperatorFixture(t, func(s *operatorFixture) {
				s.begin()
				s.until(time.Second)
				other := maps.Clone(s.wantWrites(1, "first"))
				delete(other, field)
				s.show(other)
				s.until(resync + 2*time.Second)
				s.wantWrites(2, "when it is deleted")
			})
		})
	}
}

func TestDegradedIsWrittenWhenTheInertiaIsOver(t *testing.T) {
	withOperatorFixture(t, func(s *operatorFixture) {
		s.begin()
		s.until(time.Second)
		s.wantWrites(1, "first")
		s.set(pluginsAre("a", operatorstatus.True, contract.PluginError, "x", s.start.Add(time.Second)))
		s.until(time.Second + inertia)
		s.wantWrites(1, "before")
		s.until(time.Second + inertia + 1 + syncqueue.CoalescePeriod)
		s.wantWrites(2, "when it is over")
		s.until(time.Hour)
		s.wantWrites(2, "and nothing more")
	})
}

func TestNothingIsWrittenWhereThereIsNoClusterOperator(t *testing.T) {
	withOperatorFixture(t, func(s *operatorFixture) {
		must.Succeed(t, s.client.Tracker().Delete(informers.ClusterOperators, "", object.Name))
		s.begin()
		s.until(time.Hour)
		s.wantWrites(0, "without it")
		must.Succeed(t, s.client.Tracker().Create(informers.ClusterOperators, clusterOperator(nil), ""))
		s.until(time.Hour + resync + time.Second)
		s.wantWrites(1, "when it is made")
	})
}
