//go:build integration

package rollup

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The plugin that encrypts this API server's own Secrets and ConfigMaps becomes unhealthy
// while the operator is down. Then both restart: the operator must report it without
// reading a Secret.
func TestUnhealthyPluginIsReportedAfterEverythingRestarts(t *testing.T) {
	plugin := fixture.UseEncryptedCluster(t)
	op := fixture.NewOperator(t)
	reporters := startReporting(t, op, plugin)
	kubeconfig := op.Credentials("")
	op.Kill(syscall.SIGKILL)

	if err := plugin.Crash(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := fixture.Cluster.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	op.Run(kubeconfig) // and finds no API server
	restarted := time.Now()
	if err := fixture.Cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginError)
	if _, err := fixture.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(ctx, apiservers.EncryptionSecret, metav1.GetOptions{}); err == nil {
		t.Error("the API server reads Secrets without its plugin")
	}
	// It answers when it takes the first report.
	first := func(writes []written) time.Time {
		for _, w := range writes {
			if w.at.After(restarted) && w.code == 200 && strings.Contains(w.what, "/kubeapiservers/cluster/status") {
				return w.at
			}
		}
		t.Fatalf("no such write:\n%s", texts(writes))
		return time.Time{}
	}
	answered, rolledUp := first(writesOf(t, reporterUser)), first(operatorWrites(t))
	const intervals = 2 * time.Second
	if after := rolledUp.Sub(answered); after > intervals {
		t.Errorf("rolled up %s after the API server took the first report, must be at most %s", after, intervals)
	} else {
		t.Logf("rolled up %s after the API server took the first report", after.Round(time.Millisecond))
	}
	c := fixture.AwaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginError)
	fixture.Eventually(t, "the message names all three nodes", func() error {
		if c = fixture.Resource(t, apiservers.Kube).Conditions[rollup.Degraded]; !strings.Contains(c.Message, "key 1 on all 3 nodes: error: ") {
			return errors.New(c.Message)
		}
		return nil
	})
	// The plugins of each pod are known from before, though no Secret can be read.
	fixture.AwaitRollUp(t, apiservers.Kube, rollup.Observed, operatorcr.True, rollup.AsExpected)
	fixture.AwaitRollUp(t, apiservers.Kube, rollup.WriteKeyAgreed, operatorcr.Unknown, rollup.PluginUnhealthy)

	if err := plugin.Return(); err != nil {
		t.Fatal(err)
	}
	awaitHealthy(t)
	removeTarget(t, op, reporters)
}

// The connection to the API server dies without a word, as when the node of one of several
// loses its power. A fault is reported over another one, soon: client-go alone notices after
// 45 s that nothing answers.
func TestConnectionThatDiesWithoutAWordIsReplaced(t *testing.T) {
	proxy, err := controlplane.NewProxy(fixture.Cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	op := fixture.NewOperator(t)
	op.Server = proxy.URL()
	reporters := startReporting(t, op, nil)
	awaitNoWrites(t)
	for _, mode := range []controlplane.ProxyMode{controlplane.BlackHole, controlplane.Pass} {
		if err := proxy.SetMode(mode); err != nil {
			t.Fatal(err)
		}
	}
	died := time.Now()
	if err := reporters[1].plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginUnhealthy)
	// 15 s, and a backoff.
	if took := time.Since(died); took > 30*time.Second {
		t.Errorf("reported %s after the connection died", took)
	} else {
		t.Logf("reported %s after the connection died", took.Round(time.Millisecond))
	}
	if err := reporters[1].plugin.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	awaitHealthy(t)
	removeTarget(t, op, reporters)
}
