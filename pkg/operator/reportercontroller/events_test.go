package reportercontroller

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// patched simulates an API server with one object. A patch without a change keeps the resourceVersion. A patch of
// another resourceVersion is a conflict.
func patched(version int) clienttesting.ReactionFunc {
	last := ""
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

// live returns an object as the API server stores it.
func live(apiVersion, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"name": "o", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}}
}

// desired returns the object as the operator applies it.
func desired(live *unstructured.Unstructured) *unstructured.Unstructured {
	o := live.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(o.Object, "metadata", "uid")
	unstructured.RemoveNestedField(o.Object, "rules")
	return o
}

func notFound(clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "apiserver")
}

// eventsOf reconciles a plan three times, and returns the reasons of the Events.
func eventsOf(t *testing.T, plan Plan, secrets []runtime.Object, patch clienttesting.ReactionFunc,
	own ...*unstructured.Unstructured) (events []string) {
	t.Helper()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), own[1])
	if patch == nil {
		patch = patched(1)
	}
	client.PrependReactor("patch", "*", patch)
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	e := executor(client)
	e.applier, e.Now = ssa.New(client), clock.Now
	e.Core = kubernetesfake.NewClientset(secrets...).CoreV1()
	e.Event = func(_, _, reason, _ string) { events = append(events, reason) }
	s := &Snapshot{Own: own, Deployment: deployment(1), Injected: true}
	s.Target, s.Deployment.ResourceVersion = &v1alpha1.APIServer{Name: "api", Namespace: "ns",
		PodSelector: map[string]string{"app": "api"}}, "1"
	plan.State.Namespace = "ns"
	for range 3 {
		if o := e.reconcile(context.Background(), s, &plan); o.Err != nil {
			t.Fatal(o.Err)
		}
		clock.Step(2 * time.Second)
	}
	return events
}

// A sync that is repeated, by a retry or while the watch is late, emits no Event again.
func TestEventIsEmittedOnceForEachChange(t *testing.T) {
	configMap, pod, role := live("v1", "ConfigMap"), live("v1", "Pod"),
		live("rbac.authorization.k8s.io/v1", "ClusterRole")
	role.Object["rules"] = []any{"changed"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: objects.TokenName("api"), Namespace: "ns"}}
	for name, c := range map[string]struct {
		plan    Plan
		secrets []runtime.Object
		patch   clienttesting.ReactionFunc
		want    []string
	}{
		"a Secret is deleted": {plan: Plan{DeleteToken: true}, secrets: []runtime.Object{secret},
			want: []string{"Deleted"}},
		"a Secret that does not exist": {plan: Plan{DeleteToken: true}},
		"the reporter is removed":      {plan: Plan{Eject: true}, want: []string{"Ejected"}},
		"the reporter is added": {plan: Plan{Inject: desired(live("apps/v1", "Deployment"))},
			want: []string{"Injected"}},
		"the Deployment does not exist": {plan: Plan{Eject: true}, patch: notFound},
		"the reporter was removed before": {plan: Plan{Eject: true},
			patch: func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, live("apps/v1", "Deployment"), nil
			}},
		"an object is applied": {plan: Plan{Apply: []*unstructured.Unstructured{desired(configMap)}},
			want: []string{"Applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			events := eventsOf(t, c.plan, c.secrets, c.patch, configMap, pod, role)
			if !slices.Equal(events, c.want) {
				t.Errorf("Events %v, want %v", events, c.want)
			}
		})
	}
}
