//go:build integration

package rollup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// typedReports writes healthReports for a node, under a manager.
func typedReports(t *testing.T, server apiservers.Server, manager, node, status string, checked time.Time) {
	t.Helper()
	o := server.Status()
	list := map[string]any{"healthReports": []any{map[string]any{
		"nodeName": node, "keyID": "1", "status": status, "remoteKeyID": "k", "lastCheckedTime": checked.UTC().Format(time.RFC3339),
	}}}
	o["status"] = map[string]any{"encryptionStatus": list}
	if server == apiservers.OAuth {
		o["status"] = map[string]any{"oauthAPIServer": map[string]any{"encryptionStatus": list}}
	}
	if err := apiservers.Apply(t.Context(), fixture.Client, manager, controlplane.OperatorGVR(server.Resource), "", o, "status"); err != nil {
		t.Fatal(err)
	}
}

// forms are who reports in which form.
func forms(r *operatorcr.Status) []string {
	var all []string
	for _, report := range r.Reports {
		all = append(all, report.Node+" "+string(report.Form))
	}
	return all
}

// When KMS is turned off our reports are removed, and third-party ones stay.
// No entry of a reporter is left in managedFields.
func TestReportsAreRemovedWithKMS(t *testing.T) {
	const thirdParty = "kms-preflight"
	for _, server := range []apiservers.Server{apiservers.Kube, apiservers.OAuth} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, others=%v", server.Name, others), func(t *testing.T) {
				op := fixture.NewOperator(t)
				fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"))
				op.Configure(fixture.Targets(server.Target("mode: Sidecar")))
				op.Start("")
				fixture.AwaitCondition(t, server.Resource, "False", "NoReporters") // it has no pods
				now := time.Now()
				for _, node := range fixture.NodeNames[:2] {
					message, err := contract.EncodeMessage([]contract.Entry{{KeyID: "1", KEKID: "k", Status: contract.Healthy, LastChecked: now, Interval: time.Minute}})
					if err != nil {
						t.Fatal(err)
					}
					if err := server.Report(t.Context(), fixture.Client, node, message, now); err != nil {
						t.Fatal(err)
					}
				}
				var want []string
				if others {
					typedReports(t, server, thirdParty, "master-2", "Healthy", now)
					want = []string{"master-2 HealthReports"}
				}
				fixture.SetEncryption(t, server, apiservers.Encryption("identity"))
				fixture.Eventually(t, "our reports are deleted, and no others", func() error {
					if got := forms(fixture.Resource(t, server)); !slices.Equal(got, want) {
						return fmt.Errorf("left: %s", got)
					}
					return nil
				})
				op.Configure("apiServers: []\n")
				op.AwaitNothingLeft()
				o, err := fixture.Client.Resource(controlplane.OperatorGVR(server.Resource)).Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var managers []string
				for _, m := range o.GetManagedFields() {
					if strings.HasPrefix(m.Manager, "kms-") {
						managers = append(managers, m.Manager)
					}
				}
				if others && !slices.Equal(managers, []string{thirdParty}) || !others && len(managers) > 0 {
					t.Errorf("managers left: %s", managers)
				}
				if others { // its owner removes it
					if err := apiservers.Apply(t.Context(), fixture.Client, thirdParty, controlplane.OperatorGVR(server.Resource), "", withoutStatus(server), "status"); err == nil {
						t.Log("the third-party report was removed by its own manager")
					} else {
						removeReports(t, server)
					}
				}
			})
		}
	}
}

// removeReports removes all of them, the typed ones too, as an administrator.
func removeReports(t *testing.T, server apiservers.Server) {
	t.Helper()
	resource := fixture.Client.Resource(controlplane.OperatorGVR(server.Resource))
	typed := "null"
	for _, field := range slices.Backward(contract.ResourceFor(server.Resource, server.Name).EncryptionStatus) {
		typed = fmt.Sprintf("{%q: %s}", field, typed)
	}
	fixture.Eventually(t, "the reports are removed, and none was written meanwhile", func() error {
		_, err := resource.Patch(context.Background(), controlplane.ClusterObject, types.MergePatchType, []byte(typed), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		now := fixture.Resource(t, server)
		_, err = resource.Patch(context.Background(), controlplane.ClusterObject, types.JSONPatchType,
			operatorcr.Removal(now.Version, now.Reports), metav1.PatchOptions{}, "status")
		return err
	})
}

func withoutStatus(server apiservers.Server) map[string]any {
	o := server.Status()
	delete(o, "status")
	return o
}
