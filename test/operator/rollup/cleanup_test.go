//go:build integration

package rollup

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// When KMS is turned off our reports are removed, and third-party ones stay.
// No entry of a reporter is left in managedFields.
func TestReportsAreRemovedWithKMS(t *testing.T) {
	const thirdParty = "kms-preflight"
	server := apiservers.Kube
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"))
	op.Configure(fixture.Targets(server.Target("mode: Sidecar")))
	op.Start("")
	fixture.AwaitCondition(t, server.Resource, "False", "NoReporters") // it has no pods
	for _, node := range fixture.NodeNames[:2] {
		fixture.ReportStatus(t, server, node, contract.Healthy)
	}
	typed := server.Status()
	typed["status"] = map[string]any{"encryptionStatus": map[string]any{"healthReports": []any{map[string]any{
		"nodeName": "master-2", "keyID": "1", "status": "Healthy", "remoteKeyID": "k", "lastCheckedTime": "2026-05-08T12:34:56Z",
	}}}}
	resource := controlplane.OperatorGVR(server.Resource)
	if err := apiservers.Apply(t.Context(), fixture.Client, thirdParty, resource, "", typed, "status"); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range o.GetManagedFields() {
		if strings.HasPrefix(m.Manager, "kms-") && m.Manager != thirdParty {
			t.Errorf("manager left: %s", m.Manager)
		}
	}
	fixture.RemoveNativeReports(t, server)
}
