package informers

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// withNode returns a fake API with Node b.
func withNode() *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{contract.Resources[0].GVR(): "KubeAPIServerList"}
	for _, r := range []schema.GroupVersionResource{
		Pods, Nodes, ConfigMaps, ServiceAccounts, Namespaces, DaemonSets, ClusterRoles, ClusterBindings, Policies,
		PolicyBindings, Events,
	} {
		kinds[r] = "AnyList"
	}
	node := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "b"}},
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, node)
}

func TestTheDeliveryIsWokenWhenNodesCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := withNode()
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(Nodes.GroupResource(), "b", errors.New("no right"))
		})
		deliveries := &wakes{}
		c := NewCluster(t.Context(), ClusterOptions{
			Client: client, Namespace: "kms-health", Reporters: deliveries, Health: &wakes{},
		})
		time.Sleep(time.Second)
		n := deliveries.count()
		if n == 0 || !apierrors.IsForbidden(c.Nodes.Err()) {
			t.Errorf("the delivery was woken %d times: %v", n, c.Nodes.Err())
		}
	})
}

func TestOfANodeIsKeptWhetherItIsReady(t *testing.T) {
	at := func(conditions any) Node {
		return readNode(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a"}, "status": map[string]any{"conditions": conditions},
		}})
	}
	ready := func(status string, minute int) any {
		return []any{map[string]any{"type": "MemoryPressure", "status": "True"}, map[string]any{"type": "Ready",
			"status": status, "lastHeartbeatTime": fmt.Sprintf("2026-05-08T11:%02d:00Z", minute)}}
	}
	if n := at(ready("True", 1)); !n.Ready || !reflect.DeepEqual(n, at(ready("True", 2))) {
		t.Errorf("a heartbeat would wake controllers: %+v", n)
	}
	for name, conditions := range map[string]any{
		"not Ready": ready("False", 1), "the kubelet does not report": ready("Unknown", 1), "no condition yet": nil,
		"something else": "True", "something else in the list": []any{"Ready", map[string]any{}, nil},
	} {
		if at(conditions).Ready {
			t.Errorf("%s: Ready", name)
		}
	}
}
