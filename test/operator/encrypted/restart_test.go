//go:build integration

package encrypted

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The plugin that encrypts the Secrets and ConfigMaps of the operator's API server becomes unhealthy while the operator
// is down. Then both restart. The operator must report the plugin without reading a Secret.
func TestUnhealthyPluginIsReportedAfterEverythingRestarts(t *testing.T) {
	plugin := fixture.Plugin
	op := fixture.NewOperator(t)
	fixture.StartReporting(t, op, plugin, "1s")
	kubeconfig := op.Credentials()
	op.Kill(syscall.SIGKILL)

	must.Succeed(t, plugin.Crash())
	must.Succeed(t, fixture.Cluster.StopAPIServer(t.Context()))
	op.Run(kubeconfig) // while the API server is down
	restarted := time.Now()
	must.Succeed(t, fixture.Cluster.StartAPIServer(t.Context()))
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginError)
	if _, err := fixture.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(t.Context(), apiservers.EncryptionSecret, metav1.GetOptions{}); err == nil {
		t.Error("the API server reads Secrets without its plugin")
	}
	// The API server is up when it accepts the first report.
	first := func(writes []fixture.Written) time.Time {
		for _, w := range writes {
			if w.At.After(restarted) && w.Code == 200 && strings.Contains(w.What, "/kubeapiservers/cluster/status") {
				return w.At
			}
		}
		t.Fatalf("no such write:\n%s", fixture.Texts(writes))
		return time.Time{}
	}
	answered, rolledUp := first(fixture.WritesOf(t, fixture.ReporterUser)), first(fixture.OperatorWrites(t))
	const most = 45 * time.Second // an API server that starts refuses requests, and the operator retries within 10 s
	if after := rolledUp.Sub(answered); after > most {
		t.Errorf("rolled up %s after the API server took the first report, must be at most %s", after, most)
	} else {
		t.Logf("rolled up %s after the API server took the first report", after.Round(time.Millisecond))
	}
	fixture.AwaitEqual(t, "the message names all three nodes", true, func() bool {
		message := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded].Message
		return strings.Contains(message, "key 1 on nodes master-0, master-1, master-2: error: ")
	})
	// The operator knows the plugins of each pod from its recorded state, though it can read no Secret.
	fixture.Eventually(t, "KMSHealthReporting is about what cannot be read alone", func() error {
		c := fixture.Resource(t, apiservers.Kube).Conditions[contract.HealthReporting]
		if c.Status != operatorstatus.False || c.Reason != contract.RequestFailed && c.Reason != contract.SourceUnreadable {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, operatorstatus.Unknown, contract.PluginUnhealthy)

	must.Succeed(t, plugin.Return())
	fixture.AwaitHealthy(t)
}
