package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// store is the API server's events, by name.
type store struct {
	mu     sync.Mutex
	events map[string]*corev1.Event
}

func (s *store) all() []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.events))
}

func (s *store) Create(e *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[e.Name] = e.DeepCopy()
	return e, nil
}

func (s *store) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e, json.Unmarshal(data, s.events[e.Name])
}

func (s *store) Update(*corev1.Event) (*corev1.Event, error) { return nil, errors.New("not used") }

func TestEventsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{events: map[string]*corev1.Event{}}
		event, shutdown := newEvents(s, "home")
		// The first delivery to many nodes emits as many Events.
		for i := range 60 {
			event("kube", corev1.EventTypeNormal, "Created", fmt.Sprintf("Pod %d", i))
			time.Sleep(time.Nanosecond) // an Event's name contains its time
		}
		for range 3 {
			event("kube", corev1.EventTypeWarning, "Forbidden", "no right")
			time.Sleep(time.Second)
		}
		if len(s.all()) != 61 {
			t.Errorf("%d events, want 60 different ones, and one that counts", len(s.all()))
		}
		for _, e := range s.all() {
			want := corev1.Event{Type: corev1.EventTypeNormal, Reason: "Created", Count: 1}
			if e.Reason == "Forbidden" {
				want = corev1.Event{Type: corev1.EventTypeWarning, Reason: "Forbidden", Count: 3}
			}
			about := corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "home", Namespace: "home"}
			if e.Type != want.Type || e.Reason != want.Reason || e.Count != want.Count || e.Namespace != "home" ||
				e.InvolvedObject != about ||
				e.Source.Component != "kms-health-operator" || !strings.HasPrefix(e.Message, "kube: ") {
				t.Errorf("%+v", e)
			}
		}
		shutdown()
	})
}
