package source

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestNodesAreFollowedWhileATargetNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds := map[schema.GroupVersionResource]string{operatorcr.Resources[0].GVR(): "KubeAPIServerList"}
		for _, r := range []schema.GroupVersionResource{Pods, Nodes, ConfigMaps, ServiceAccounts, Namespaces, DaemonSets, ClusterRoles, ClusterBindings, Policies, PolicyBindings} {
			kinds[r] = "AnyList"
		}
		node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "b"}}}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, node)
		c := NewCluster(t.Context(), ClusterOptions{Client: client, Namespace: "kms-health", WakeDelivery: func() {}, WakeRollup: func() {}})
		defer c.End()
		start := func() *Target {
			return NewTarget(t.Context(), c, &v1alpha1.Target{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers}, TargetOptions{WakeDelivery: func() {}, WakeRollup: func() {}})
		}
		first, second := start(), start()
		first.Nodes(map[string]bool{"a": true, "b": true})
		second.Nodes(map[string]bool{"b": true, "c": true})
		followed := func(want int) {
			t.Helper()
			if got := len(c.nodes.byName); got != want {
				t.Errorf("%d Nodes are followed, want %d", got, want)
			}
		}
		followed(3)
		first.End()
		followed(2)
		if _, known := first.Nodes(map[string]bool{"a": true}); known {
			t.Error("a target that has ended has Nodes")
		}
		followed(2)
		synctest.Wait()
		if found, known := second.Nodes(map[string]bool{"b": true}); !known || len(found) != 1 {
			t.Errorf("%v, known %v", found, known)
		}
		followed(1)
		second.End()
		followed(0)
	})
}
