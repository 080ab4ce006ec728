package source

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func TestNodesAreFollowedWhileATargetNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := withNode()
		c := NewCluster(t.Context(), ClusterOptions{Client: client, Namespace: "kms-health", WakeDelivery: func() {}, WakeRollup: func() {}})
		defer c.End()
		start := func() *Target {
			return NewTarget(t.Context(), c, &v1alpha1.APIServer{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers}, TargetOptions{WakeDelivery: func() {}, WakeRollup: func() {}})
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

// withNode is an API with Node b.
func withNode() *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{contract.Resources[0].GVR(): "KubeAPIServerList"}
	for _, r := range []schema.GroupVersionResource{Pods, Nodes, ConfigMaps, ServiceAccounts, Namespaces, DaemonSets, ClusterRoles, ClusterBindings, Policies, PolicyBindings} {
		kinds[r] = "AnyList"
	}
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "b"}}}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, node)
}

// The delivery reports whether Nodes can be read, and needs nothing else of them.
func TestTheDeliveryIsWokenWhenNodesBecomeUnreadableAndNotByTheirChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := withNode()
		var fails atomic.Bool
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, apierrors.NewForbidden(Nodes.GroupResource(), "b", errors.New("no right"))
		})
		var deliveries, rollups atomic.Int64
		c := NewCluster(t.Context(), ClusterOptions{Client: client, Namespace: "kms-health",
			WakeDelivery: func() { deliveries.Add(1) }, WakeRollup: func() { rollups.Add(1) }})
		defer c.End()
		target := NewTarget(t.Context(), c, &v1alpha1.APIServer{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers}, TargetOptions{WakeDelivery: func() {}, WakeRollup: func() {}})
		defer target.End()
		target.Nodes(map[string]bool{"b": true})
		time.Sleep(time.Second)
		deliveries.Store(0)
		rollups.Store(0)
		ready := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "b"},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}}
		if _, err := client.Resource(Nodes).Update(t.Context(), ready, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if deliveries.Load() > 0 || rollups.Load() == 0 {
			t.Errorf("a change wakes the delivery %d times, the roll-up %d times", deliveries.Load(), rollups.Load())
		}
		if all := target.NodeSources(); len(all) != 1 || all[0].Err() != nil {
			t.Errorf("%d sources", len(all))
		}
		fails.Store(true)
		target.Nodes(nil)
		if all := target.NodeSources(); len(all) > 0 {
			t.Errorf("%d sources of no Node", len(all))
		}
		target.Nodes(map[string]bool{"b": true})
		time.Sleep(time.Second)
		if all := target.NodeSources(); deliveries.Load() == 0 || len(all) != 1 || !apierrors.IsForbidden(all[0].Err()) {
			t.Errorf("the delivery was woken %d times; %d sources", deliveries.Load(), len(all))
		}
	})
}
