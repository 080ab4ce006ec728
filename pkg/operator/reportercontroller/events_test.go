package reportercontroller

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// patched simulates an API server with one object of version 1. A patch without a change keeps the resourceVersion. A
// patch of another resourceVersion is a conflict.
func patched() clienttesting.ReactionFunc {
	last, version := "", 1
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(patch.GetPatch(), &o.Object); err != nil {
			return true, nil, err
		}
		if read := o.GetResourceVersion(); read != "" && read != strconv.Itoa(version) {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: a.GetResource().Resource}, o.GetName(), nil)
		}
		if text := string(patch.GetPatch()); text != last {
			last = text
			version++
		}
		o.SetResourceVersion(strconv.Itoa(version))
		return true, o, nil
	}
}

// A sync that is repeated, by a retry or while the watch is late, emits no Event again.
func TestEventIsEmittedOnceForEachChange(t *testing.T) {
	configMap, stored := object("v1", "ConfigMap", "ns", "o"), object("apps/v1", "Deployment", "ns", "o")
	stored.SetResourceVersion("1")
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "apiserver")
	answer := func(o runtime.Object, err error) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) { return true, o, err }
	}
	for name, c := range map[string]struct {
		plan  Plan
		patch clienttesting.ReactionFunc
		want  []string
	}{
		"the reporter is removed": {Plan{Eject: true}, patched(), []string{"Ejected"}},
		"the reporter is added": {Plan{Inject: object("apps/v1", "Deployment", "ns", "o")}, patched(),
			[]string{"Injected"}},
		"the Deployment does not exist":   {Plan{Eject: true}, answer(nil, notFound), nil},
		"the reporter was removed before": {Plan{Eject: true}, answer(stored, nil), nil},
		"an object is applied":            {Plan{Apply: objectList{configMap}}, patched(), []string{"Applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient()
			client.PrependReactor("patch", "*", c.patch)
			e := executor(client)
			var events []string
			e.Event = func(_, _, reason, _ string) { events = append(events, reason) }
			live := configMap.DeepCopy()
			live.SetResourceVersion("1")
			s := anyServer()
			s.Own, s.Deployment = objectList{live}, deployment(1)
			s.Deployment.ResourceVersion, c.plan.State.Namespace = "1", "ns"
			for range 3 {
				if o := e.reconcile(t.Context(), s, &c.plan); o.Err != nil {
					t.Fatal(o.Err)
				}
			}
			if !slices.Equal(events, c.want) {
				t.Errorf("Events %v, want %v", events, c.want)
			}
		})
	}
}
