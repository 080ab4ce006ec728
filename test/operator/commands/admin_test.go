//go:build integration

package commands

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// An administrator sees a fault with kubectl: in the ClusterOperator, in the objects that it names, and by the exit
// code of kubectl kms-health.
func TestAdministratorSeesAFaultAndItsEnd(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=2s", "--leader-elect=true")
	kubectl := fixture.NewKubectl(t)
	status := func(when string, want int, text string) {
		t.Helper()
		fixture.Eventually(t, when+": kubectl kms-health status", func() error {
			if out, code := kubectl("kms-health", "status"); code != want || !strings.Contains(out, text) {
				return fmt.Errorf("exit code %d, must be %d, with %q:\n%s", code, want, text, out)
			}
			return nil
		})
	}
	status("nothing is reported", 2, "")
	reporters := fixture.StartReporting(t, op, nil, fixture.Steady.String())
	fixture.AwaitClusterOperator(t, "True False False True")
	status("everything is healthy", 0, "(write)  healthy")

	must.Succeed(t, reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}))
	status("a plugin is unhealthy", 1, "master-1  1 (write)  unhealthy")
	fixture.AwaitClusterOperator(t, "True False True False")
	if c := fixture.ClusterOperator(t)["Degraded"]; c.Reason != "KMSPlugins_PluginUnhealthy" || !strings.Contains(c.Message, "kube-apiserver: key 1 on node master-1: unhealthy") {
		t.Errorf("%+v", c)
	}
	fixture.Eventually(t, "an event reports it", func() error {
		out, _ := kubectl("get", "events", "-n", fixture.Namespace, "--field-selector", "type=Warning,reason=PluginUnhealthy")
		if !strings.Contains(out, "KMSPluginsDegraded is True") {
			return errors.New(out)
		}
		return nil
	})
	must.Succeed(t, reporters[1].Plugin.ClearFaults())
	fixture.AwaitClusterOperator(t, "True False False True")
	status("everything has recovered", 0, "(write)  healthy")
}
