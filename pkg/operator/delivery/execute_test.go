package delivery

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
)

// A pod that the watch has not delivered yet keeps what it mounts, until the whole
// target is removed.
func TestConfigMapMountedByAPodThatTheWatchHasNotDeliveredStays(t *testing.T) {
	for name, test := range map[string]struct {
		labels   map[string]any
		mounted  string
		deleting bool
		stays    bool
	}{
		"mounted":                 {map[string]any{"apiserver": "true"}, "set", false, true},
		"another is mounted":      {map[string]any{"apiserver": "true"}, "other", false, false},
		"not a pod of the target": {map[string]any{"apiserver": "false"}, "set", false, false},
		"the target is removed":   {map[string]any{"apiserver": "true"}, "set", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			configMap := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "set", "namespace": "there"},
			}}
			pod := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod", "namespace": "there", "labels": test.labels},
				"spec": map[string]any{"volumes": []any{map[string]any{"name": "config", "configMap": map[string]any{"name": test.mounted}}}},
			}}
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), configMap, pod)
			e := &Executor{Client: client, Applier: apply.New(client, manifests.Manager, clock.RealClock{}), Clock: clock.RealClock{}, Event: func(_, _, _, _ string) {}}
			s := &Snapshot{Deleting: test.deleting}
			s.Target = &v1alpha1.Target{Name: "target", Namespace: "there", PodSelector: map[string]string{"apiserver": "true"}}
			outcome := e.Execute(t.Context(), s, &Plan{State: State{Namespace: "there"}, Delete: []*unstructured.Unstructured{configMap}})
			if outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("there").Get(t.Context(), "set", metav1.GetOptions{})
			if test.stays && (err != nil || outcome.Requeue == 0) || !test.stays && !apierrors.IsNotFound(err) {
				t.Errorf("%v; requeue after %s", err, outcome.Requeue)
			}
		})
	}
}
