package status

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

const (
	// maxWatchLag is how long what was applied counts while the watch does not show it.
	maxWatchLag = 30 * time.Second
	// applyTimeout bounds one request.
	applyTimeout = 10 * time.Second
)

// Object is a cluster-scoped object with a status.
type Object struct {
	Resource   schema.GroupVersionResource
	Kind, Name string
}

// ObjectOf is the object that has the reports.
func ObjectOf(r contract.Resource) Object { return Object{r.GVR(), r.Kind, r.Name} }

// Standing is what stands in the status of an object.
type Standing struct {
	Version    string // the object's resourceVersion
	Conditions map[string]operatorcr.Condition
	// Fields are those beside the conditions that are applied with them, as they were
	// read; nil: none.
	Fields map[string]any
}

// Writer applies conditions to the status of objects, and remembers what it
// applied until the watch shows it, so that a controller that looks at a cache
// neither repeats a write nor decides by what was there before it. It may be used
// by several goroutines, each with its own object.
type Writer struct {
	Client dynamic.Interface
	// Manager is the field manager. It owns all that is applied: each Apply removes
	// what the one before had, and this one has not.
	Manager string
	// Types are the conditions that are applied, or removed where they are not given.
	Types []string
	Clock clock.PassiveClock

	mu      sync.Mutex
	applied map[Object]applied
}

type applied struct {
	Standing
	at time.Time
}

// Standing returns what stands in an object's status, given what the watch shows:
// what was applied counts until the watch shows a version at least as new, for
// maxWatchLag at most. again is when to check again even if nothing has changed; zero: never.
func (w *Writer) Standing(o Object, shown Standing) (standing Standing, again time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, recent := w.applied[o]
	if !recent {
		return shown, time.Time{}
	}
	until := was.at.Add(maxWatchLag)
	if apiserver.Shows(shown.Version, was.Version) || w.Clock.Now().After(until) {
		delete(w.applied, o)
		return shown, time.Time{}
	}
	standing = Standing{Version: shown.Version, Conditions: maps.Clone(shown.Conditions), Fields: was.Fields}
	if standing.Conditions == nil {
		standing.Conditions = map[string]operatorcr.Condition{}
	}
	maps.DeleteFunc(standing.Conditions, func(t string, _ operatorcr.Condition) bool {
		return slices.Contains(w.Types,
			t)
	})
	maps.Copy(standing.Conditions, was.Conditions)
	return standing, until.Add(1)
}

// Apply makes these conditions and fields the object's, unless they stand there
// already, as Standing returned it. Conditions of Types that are not given are
// removed. changed means that something was written.
func (w *Writer) Apply(ctx context.Context, o Object, standing Standing, conditions []operatorcr.Condition,
	fields map[string]any) (changed bool, err error) {
	next := Standing{Conditions: map[string]operatorcr.Condition{}, Fields: fields}
	list := make([]any, 0, len(conditions))
	for _, c := range conditions {
		next.Conditions[c.Type] = c
		list = append(list, c.Fields())
	}
	if w.same(standing, next) {
		return false, nil
	}
	body := map[string]any{
		"apiVersion": o.Resource.GroupVersion().String(), "kind": o.Kind, "metadata": map[string]any{"name": o.Name},
	}
	status := maps.Clone(fields)
	if len(list) > 0 {
		if status == nil {
			status = map[string]any{}
		}
		status["conditions"] = list
	}
	if len(status) > 0 {
		body["status"] = status
	}
	raw, err := applybody.Marshal(body)
	if err != nil {
		return false, fmt.Errorf("marshal the status of %s/%s: %w", o.Resource.Resource, o.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	force := true
	object, err := w.Client.Resource(o.Resource).Patch(ctx, o.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: w.Manager, Force: &force}, "status")
	if err != nil {
		return false, fmt.Errorf("apply the status of %s/%s: %w", o.Resource.Resource, o.Name, err)
	}
	next.Version = object.GetResourceVersion()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.applied == nil {
		w.applied = map[Object]applied{}
	}
	w.applied[o] = applied{next, w.Clock.Now()}
	return true, nil
}

// same reports whether our conditions and fields are the same in both.
func (w *Writer) same(a, b Standing) bool {
	return !slices.ContainsFunc(w.Types, func(t string) bool { return a.Conditions[t] != b.Conditions[t] }) &&
		reflect.DeepEqual(asJSON(a.Fields), asJSON(b.Fields))
}

// asJSON returns fields as they are read back from the API server; nil where there
// are none.
func asJSON(fields map[string]any) any {
	if len(fields) == 0 {
		return nil
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return err // equal to nothing: the write reports it
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return err
	}
	return plain
}
