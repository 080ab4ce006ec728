package reportercontroller

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/operator/objects"
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
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: objects.TokenName("api"), Namespace: "ns"}}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "apiserver")
	answer := func(o runtime.Object, err error) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) { return true, o, err }
	}
	for name, c := range map[string]struct {
		plan    Plan
		secrets []runtime.Object
		patch   clienttesting.ReactionFunc
		want    []string
	}{
		"a Secret is deleted":          {Plan{DeleteToken: true}, []runtime.Object{secret}, patched(), []string{"Deleted"}},
		"a Secret that does not exist": {Plan{DeleteToken: true}, nil, patched(), nil},
		"the reporter is removed":      {Plan{Eject: true}, nil, patched(), []string{"Ejected"}},
		"the reporter is added": {Plan{Inject: object("apps/v1", "Deployment", "ns", "o")}, nil, patched(),
			[]string{"Injected"}},
		"the Deployment does not exist":   {Plan{Eject: true}, nil, answer(nil, notFound), nil},
		"the reporter was removed before": {Plan{Eject: true}, nil, answer(stored, nil), nil},
		"an object is applied":            {Plan{Apply: objectList{configMap}}, nil, patched(), []string{"Applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient()
			client.PrependReactor("patch", "*", c.patch)
			e := executor(client)
			e.Core = kubernetesfake.NewClientset(c.secrets...).CoreV1()
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
