package status

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

var noon = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

// server answers each apply with a version, and keeps the body.
type server struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	mu      sync.Mutex
	version string
	err     error
	bodies  []string
}

func (s *server) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}

func (s *server) Patch(_ context.Context, name string, pt types.PatchType, body []byte, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.bodies = append(s.bodies, strings.Join(append(subresources, name, string(pt), options.FieldManager, strconv.FormatBool(*options.Force), string(body)), " "))
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetResourceVersion(s.version)
	return o, nil
}

func newWriter(s *server) (*Writer, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(noon)
	return &Writer{Client: s, Manager: "m", Types: []string{"A", "B"}, Clock: clock}, clock
}

func is(conditionType, status string) operatorcr.Condition {
	return operatorcr.Condition{Type: conditionType, Status: status, Reason: "R", LastTransitionTime: noon}
}

func conditions(all ...operatorcr.Condition) map[string]operatorcr.Condition {
	byType := map[string]operatorcr.Condition{}
	for _, c := range all {
		byType[c.Type] = c
	}
	return byType
}

var kube = ObjectOf(contract.Resources[0])

func TestWhatWasAppliedCountsUntilTheWatchShowsIt(t *testing.T) {
	ours, other := is("A", operatorcr.True), is("A", operatorcr.False)
	for name, tt := range map[string]struct {
		applied, shown string
		conditions     []operatorcr.Condition
		age            time.Duration
		want           string
		again          time.Duration
	}{
		"the watch is behind":                    {"100", "99", []operatorcr.Condition{other}, 10 * time.Second, operatorcr.True, 20*time.Second + 1},
		"the last instant":                       {"100", "99", []operatorcr.Condition{other}, 30 * time.Second, operatorcr.True, 1},
		"it is behind for too long":              {"100", "99", []operatorcr.Condition{other}, 30*time.Second + 1, operatorcr.False, 0},
		"it is there, and another wrote first":   {"100", "100", []operatorcr.Condition{other}, 0, operatorcr.False, 0},
		"it is past it":                          {"100", "101", []operatorcr.Condition{other}, 0, operatorcr.False, 0},
		"versions are numbers":                   {"10", "9", []operatorcr.Condition{other}, time.Second, operatorcr.True, 29*time.Second + 1},
		"no version":                             {"", "99", []operatorcr.Condition{other}, 0, operatorcr.False, 0},
		"the watch is behind: one was not there": {"100", "99", nil, 0, operatorcr.True, 30*time.Second + 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, clock := newWriter(&server{version: tt.applied})
			if changed, err := w.Apply(t.Context(), kube, Standing{}, []operatorcr.Condition{ours}, nil); err != nil || !changed {
				t.Fatal(changed, err)
			}
			clock.SetTime(noon.Add(tt.age))
			shown := Standing{Version: tt.shown, Conditions: conditions(append(tt.conditions, is("Others", operatorcr.Unknown))...)}
			got, again := w.Standing(kube, shown)
			if got.Conditions["A"].Status != tt.want || got.Conditions["Others"].Status != operatorcr.Unknown {
				t.Errorf("%+v", got)
			}
			if want := clock.Now().Add(tt.again); tt.again > 0 && !again.Equal(want) || tt.again == 0 && !again.IsZero() {
				t.Errorf("again at %s", again)
			}
			if _, kept := w.applied[kube]; kept != (tt.again > 0) {
				t.Errorf("kept: %v", kept)
			}
		})
	}
}

func TestApplyWritesWhatDoesNotStand(t *testing.T) {
	const head = `status cluster application/apply-patch+yaml m true {"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"}`
	const a = `{"lastTransitionTime":"2026-05-08T12:00:00Z","message":"","reason":"R","status":"True","type":"A"}`
	fields := map[string]any{"versions": []map[string]string{{"name": "operator", "version": "1"}}}
	read := map[string]any{"versions": []any{map[string]any{"name": "operator", "version": "1"}}}
	for name, tt := range map[string]struct {
		standing   Standing
		conditions []operatorcr.Condition
		fields     map[string]any
		want       string // empty: no write
	}{
		"nothing stands, and nothing is to":     {Standing{}, nil, nil, ""},
		"another's condition is not ours":       {Standing{Conditions: conditions(is("C", operatorcr.True))}, nil, nil, ""},
		"it stands":                             {Standing{Conditions: conditions(is("A", operatorcr.True))}, []operatorcr.Condition{is("A", operatorcr.True)}, nil, ""},
		"a new one":                             {Standing{}, []operatorcr.Condition{is("A", operatorcr.True)}, nil, head + `,"status":{"conditions":[` + a + `]}}`},
		"another status":                        {Standing{Conditions: conditions(is("A", operatorcr.False))}, []operatorcr.Condition{is("A", operatorcr.True)}, nil, head + `,"status":{"conditions":[` + a + `]}}`},
		"one of two is removed":                 {Standing{Conditions: conditions(is("A", operatorcr.True), is("B", operatorcr.True))}, []operatorcr.Condition{is("A", operatorcr.True)}, nil, head + `,"status":{"conditions":[` + a + `]}}`},
		"all are removed":                       {Standing{Conditions: conditions(is("A", operatorcr.True))}, nil, nil, head + `}`},
		"fields stand as they are read":         {Standing{Fields: read}, nil, fields, ""},
		"a field alone":                         {Standing{}, nil, fields, head + `,"status":{"versions":[{"name":"operator","version":"1"}]}}`},
		"fields are removed with the condition": {Standing{Conditions: conditions(is("A", operatorcr.True)), Fields: read}, nil, nil, head + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{version: "2"}
			w, _ := newWriter(s)
			changed, err := w.Apply(t.Context(), kube, tt.standing, tt.conditions, tt.fields)
			if err != nil || changed != (tt.want != "") {
				t.Fatalf("%v, %v", changed, err)
			}
			if got := strings.Join(s.bodies, "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			// It is not repeated while the watch is behind.
			tt.standing.Version = "1"
			standing, _ := w.Standing(kube, tt.standing)
			if changed, err := w.Apply(t.Context(), kube, standing, tt.conditions, tt.fields); changed || err != nil {
				t.Errorf("again: %v, %v", changed, err)
			}
		})
	}
}

func TestAFailedApplyIsNotRemembered(t *testing.T) {
	s := &server{err: errors.New("refused")}
	w, _ := newWriter(s)
	if changed, err := w.Apply(t.Context(), kube, Standing{}, []operatorcr.Condition{is("A", operatorcr.True)}, nil); changed || !errors.Is(err, s.err) || !strings.Contains(err.Error(), "kubeapiservers/cluster") {
		t.Fatal(changed, err)
	}
	if got, again := w.Standing(kube, Standing{}); len(got.Conditions) > 0 || !again.IsZero() {
		t.Errorf("%+v, %s", got, again)
	}
}

// With the race detector: one writer serves a worker per object.
func TestObjectsAreIndependent(t *testing.T) {
	w, _ := newWriter(&server{version: "7"})
	var all sync.WaitGroup
	for _, r := range contract.Resources {
		all.Go(func() {
			for range 100 {
				standing, _ := w.Standing(ObjectOf(r), Standing{Version: "6"})
				if _, err := w.Apply(t.Context(), ObjectOf(r), standing, []operatorcr.Condition{is("A", operatorcr.True)}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := len(w.applied); got != len(contract.Resources) {
		t.Errorf("%d objects are remembered", got)
	}
}
