//go:build integration

package delivery

import (
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// OpenShift's oauth-apiserver stores nothing while an external provider authenticates users: its pods mount no encryption
// config (externaloidc-deploy.yaml of the authentication operator), which is still copied for their revision.
func TestPodsThatReadNoEncryptionConfigAreNotExpectedToReport(t *testing.T) {
	target := apiservers.OpenShift
	op := fixture.NewOperator(t)
	op.Configure(fixture.Targets(target.Target()))
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "2")
	deployment := apiservers.Deployment("2")
	template := []string{"spec", "template"}
	for path, value := range map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"apiserver": "true", "revision": "2"}},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": int64(0),
			"tolerations":                   []any{map[string]any{"operator": "Exists"}},
			"containers":                    []any{map[string]any{"name": target.Name, "image": "apiserver:1"}},
			"volumes": []any{map[string]any{"name": "serving-cert",
				"secret": map[string]any{"secretName": "serving-cert"}}},
		},
	} {
		if err := unstructured.SetNestedField(deployment, value, append(template, path)...); err != nil {
			t.Fatal(err)
		}
	}
	fixture.ApplyObject(t, apiservers.Deployments, target.Namespace, deployment)
	t.Cleanup(func() { fixture.RemoveDeployment(t, target.Namespace) })
	fixture.AwaitPods(t, target.Namespace, "apiserver=true", 3)
	op.Start("")
	fixture.AwaitRollUp(t, target, contract.HealthReporting, operatorstatus.False, contract.NoPods)
	fixture.AwaitRollUp(t, target, contract.PluginsDegraded, operatorstatus.False, contract.NoPods)
	fixture.AwaitRollUp(t, target, contract.WriteKeyAgreed, operatorstatus.Unknown, contract.ReportsMissing)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
	fixture.RemoveEncryption(t, target)
}
