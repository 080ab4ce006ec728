//go:build integration

package rollup

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// When KMS is turned off, the operator removes its reporters' reports, and their entries in managedFields. Other
// reports stay.
func TestReportsAreRemovedWithKMS(t *testing.T) {
	const thirdParty = "kms-preflight"
	server := apiservers.Kube
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"))
	op.Start(fixture.Targets(server.Target("mode: Sidecar")))
	fixture.AwaitRollUp(t, server, contract.HealthReporting, "False", "NoReporters") // the API server has no pods
	for _, node := range fixture.NodeNames[:2] {
		fixture.ReportStatus(t, server, node, contract.Healthy)
	}
	typed := server.Status()
	typed["status"] = map[string]any{"encryptionStatus": map[string]any{"healthReports": []any{map[string]any{
		"nodeName": "master-2", "keyID": "1", "status": "Healthy", "remoteKeyID": "k", "lastCheckedTime": "2026-05-08T12:34:56Z",
	}}}}
	resource := controlplane.OperatorGVR(server.Resource)
	must.Succeed(t, apiservers.Apply(t.Context(), fixture.Client, thirdParty, resource, "", typed, "status"))
	fixture.SetEncryption(t, server, apiservers.Encryption("identity"))
	fixture.Eventually(t, "our reports are deleted, and no others", func() error {
		if left := fixture.Resource(t, server).Reports; len(left) != 1 || left[0].Form != operatorstatus.FormTyped {
			return fmt.Errorf("left: %+v", left)
		}
		return nil
	})
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
	o, err := fixture.Client.Resource(resource).Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
	must.Succeed(t, err)
	for _, m := range o.GetManagedFields() {
		if strings.HasPrefix(m.Manager, "kms-") && m.Manager != thirdParty {
			t.Errorf("manager left: %s", m.Manager)
		}
	}
	fixture.RemoveNativeReports(t, server)
}

// The operator must not remove KMSPluginsDegraded of another operator, nor wait for its removal, and a restart does not
// hide that owner. It removes a condition that a person wrote.
func TestConditionOfAnotherManagerDoesNotDelayARemoval(t *testing.T) {
	server, resource := apiservers.Kube, controlplane.OperatorGVR(apiservers.Kube.Resource)
	for manager, reason := range map[string]string{"kms-plugins-operator": contract.OtherOwner, "kubectl": "NoReporters"} {
		t.Run(manager, func(t *testing.T) {
			status := server.Status()
			status["status"] = map[string]any{"conditions": []any{map[string]any{"type": contract.PluginsDegraded, "status": "False",
				"reason": "Own", "message": "by another manager", "lastTransitionTime": "2026-05-08T12:34:56Z"}}}
			must.Succeed(t, apiservers.Apply(t.Context(), fixture.Client, manager, resource, "", status, "status"))
			op := fixture.NewOperator(t)
			fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"))
			op.Start(fixture.Targets(server.Target("mode: Sidecar")))
			fixture.AwaitRollUp(t, server, contract.HealthReporting, "False", reason)
			if seen := fixture.RecordConditions(t, server); reason == contract.OtherOwner {
				op.Restart(syscall.SIGTERM)
				fixture.Never(t, 6*time.Second, func() error { return seen.None("KMSHealthReporting False NoReporters") })
			}
			op.Configure("apiServers: []\n")
			op.AwaitNothingLeft()
			c, stays := fixture.Resource(t, server).Conditions[contract.PluginsDegraded]
			if stays != (reason == contract.OtherOwner) || stays && c.Reason != "Own" {
				t.Errorf("left: %+v", c)
			}
			delete(status, "status")
			must.Succeed(t, apiservers.Apply(t.Context(), fixture.Client, manager, resource, "", status, "status"))
		})
	}
}

// Server-Side Apply cannot remove the last conditions of a list that a PUT created: the list would be null.
func TestLastConditionsAreRemovedFromAListThatAPutWroteFirst(t *testing.T) {
	server := apiservers.Kube
	client := fixture.Client.Resource(controlplane.OperatorGVR(server.Resource))
	put := func(change func(conditions []any) []any) {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			o, err := client.Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if err := unstructured.SetNestedSlice(o.Object, change(conditions), "status", "conditions"); err != nil {
				return err
			}
			_, err = client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldManager: "kubectl-replace"})
			return err
		})
		must.Succeed(t, err)
	}
	isOther := func(c any) bool { return c.(map[string]any)["type"] == "Other" }
	put(func([]any) []any {
		return []any{map[string]any{"type": "Other", "status": "True", "reason": "Put", "message": "",
			"lastTransitionTime": "2026-05-08T12:34:56Z"}}
	})
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"))
	op.Start(fixture.Targets(server.Target("mode: Sidecar")))
	fixture.AwaitRollUp(t, server, contract.HealthReporting, "False", "NoReporters")
	put(func(conditions []any) []any { return slices.DeleteFunc(conditions, isOther) })
	op.RemoveAll()
	if left := fixture.Resource(t, server).Conditions; len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
