//go:build integration

package operator

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/test/apiservers"
)

// What the API server does not take, by an administrator's own limits, is told in its
// words; and done when it does.
func TestRefusedObjectsAreTold(t *testing.T) {
	h := newHouse(t)
	limits := schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	applyObject(t, limits, home, map[string]any{
		"apiVersion": "v1", "kind": "LimitRange", "metadata": map[string]any{"name": "little"},
		"spec": map[string]any{"limits": []any{map[string]any{"type": "Container", "default": map[string]any{"memory": "9Mi"}}}},
	})
	allow := func() error {
		return client.Resource(limits).Namespace(home).Delete(t.Context(), "little", metav1.DeleteOptions{})
	}
	t.Cleanup(func() { removeStatics(t) })
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range nodeNames {
		runStatic(t, node, staticPod("1", false))
	}
	h.configure(targets(apiservers.Kube.Target()))
	h.start("")
	awaitCondition(t, "kubeapiservers", "False", "Refused")
	eventually(t, "the API server's words", func() error {
		if m := resource(t, apiservers.Kube).Conditions["KMSHealthDelivery"].Message; !strings.Contains(m, "must be less than or equal to memory limit") {
			return errors.New(m)
		}
		return nil
	})
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}
