//go:build integration

package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// What the API server refuses by an administrator's limits is reported with its message,
// and done once it is allowed.
func TestRefusedObjectsAreReported(t *testing.T) {
	op, began := newOperator(t), time.Now()
	limits := schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	applyObject(t, limits, operatorNamespace, map[string]any{
		"apiVersion": "v1", "kind": "LimitRange", "metadata": map[string]any{"name": "little"},
		"spec": map[string]any{"limits": []any{map[string]any{"type": "Container", "default": map[string]any{"memory": "9Mi"}}}},
	})
	allow := func() error {
		return client.Resource(limits).Namespace(operatorNamespace).Delete(t.Context(), "little", metav1.DeleteOptions{})
	}
	t.Cleanup(func() { removeStatics(t) })
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range nodeNames {
		runStatic(t, node, staticPod("1", false))
	}
	op.configure(targets(apiservers.Kube.Target()))
	op.start("")
	awaitCondition(t, "kubeapiservers", "False", "Refused")
	awaitWarning(t, "Refused", began, "memory limit")
	eventually(t, "the API server's message", func() error {
		if m := resource(t, apiservers.Kube).Conditions["KMSHealthDelivery"].Message; !strings.Contains(m, "must be less than or equal to memory limit") {
			return errors.New(m)
		}
		return nil
	})
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
