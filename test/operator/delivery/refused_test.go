//go:build integration

package delivery

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// What the API server refuses by an administrator's limits is reported with its message,
// and done once it is allowed.
func TestRefusedObjectsAreReported(t *testing.T) {
	op, began := fixture.NewOperator(t), time.Now()
	limits := schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	fixture.ApplyObject(t, limits, fixture.Namespace, map[string]any{
		"apiVersion": "v1", "kind": "LimitRange", "metadata": map[string]any{"name": "little"},
		"spec": map[string]any{"limits": []any{map[string]any{"type": "Container", "default": map[string]any{"memory": "9Mi"}}}},
	})
	allow := func() error {
		return fixture.Client.Resource(limits).Namespace(fixture.Namespace).Delete(t.Context(), "little", metav1.DeleteOptions{})
	}
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, fixture.StaticPod("1", false))
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	fixture.AwaitCondition(t, "kubeapiservers", "False", "Refused")
	awaitWarning(t, "Refused", began, "memory limit")
	fixture.Eventually(t, "the API server's message", func() error {
		if m := fixture.Resource(t, apiservers.Kube).Conditions["KMSHealthDelivery"].Message; !strings.Contains(m, "must be less than or equal to memory limit") {
			return errors.New(m)
		}
		return nil
	})
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}
