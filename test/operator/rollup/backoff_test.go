//go:build integration

package rollup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A removal of reports that the API server always rejects is retried ever more rarely,
// anyKind else happens to the operator resource.
func TestRejectedRemovalIsRetriedWithBackoff(t *testing.T) {
	const policy = "reports-stay"
	policies := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings := policies.GroupVersion().WithResource("validatingadmissionpolicybindings")
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	fixture.ApplyObject(t, policies, "", map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": policy},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"operator.openshift.io"}, "apiVersions": []any{"*"}, "operations": []any{"UPDATE"}, "resources": []any{"kubeapiservers/status"},
			}}},
			"validations": []any{map[string]any{
				"expression": "oldObject.?status.?conditions.orValue([]).filter(c, c.type.endsWith('_gone')).size() <= object.?status.?conditions.orValue([]).filter(c, c.type.endsWith('_gone')).size()",
				"message":    "the test keeps this report",
			}},
		},
	})
	fixture.ApplyObject(t, bindings, "", map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": policy},
		"spec": map[string]any{"policyName": policy, "validationActions": []any{"Deny"}},
	})
	allow := func() {
		for _, gvr := range []schema.GroupVersionResource{bindings, policies} {
			_ = fixture.Client.Resource(gvr).Delete(context.Background(), policy, metav1.DeleteOptions{})
		}
	}
	t.Cleanup(func() { allow(); fixture.RemoveStatics(t) })
	fixture.ReportStatus(t, apiservers.Kube, "gone", health.Healthy) // of a node that is not there
	fixture.Eventually(t, "the policy is in force", func() error {
		r := fixture.Resource(t, apiservers.Kube)
		_, err := fixture.Client.Resource(controlplane.OperatorGVR(apiservers.Kube.Resource)).Patch(t.Context(), controlplane.ClusterObject, types.JSONPatchType,
			r.Removal(r.Reports), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("a removal led to %w", err)
		}
		return nil
	})
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	fixture.AwaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
	rejected := func() (n int) {
		for _, w := range fixture.OperatorWrites(t) {
			if w.Code == http.StatusUnprocessableEntity && strings.Contains(w.What, "kubeapiservers") {
				n++
			}
		}
		return n
	}
	fixture.Eventually(t, "the removal is rejected", func() error {
		if rejected() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	for range 40 { // noise
		fixture.ReportStatus(t, apiservers.Kube, fixture.NodeNames[0], health.Healthy)
		time.Sleep(250 * time.Millisecond)
	}
	if n := rejected(); n > 8 {
		t.Errorf("%d attempts in some 10 s, at most 8 may be", n)
	} else {
		t.Logf("%d attempts", n)
	}
	allow()
	fixture.Eventually(t, "the report is removed once it may be", func() error {
		if slices.Contains(fixture.NodesOf(fixture.Resource(t, apiservers.Kube)), "gone") {
			return errors.New("it is there")
		}
		return nil
	})
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}
