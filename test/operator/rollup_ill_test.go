//go:build integration

package operator

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
)

// The plugin falls ill that encrypts this very API server's Secrets and
// ConfigMaps, while the operator is not there; the API server restarts, and then
// the operator: it must find out without either.
func TestIllPluginIsToldAfterEverythingRestarts(t *testing.T) {
	plugin := encryptedCluster(t)
	h := newHouse(t)
	reporters := reporting(t, h, plugin)
	kubeconfig := h.credentials("")
	h.kill(syscall.SIGKILL)

	if err := plugin.Crash(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := cluster.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	h.run(kubeconfig) // and finds no API server
	restarted := time.Now()
	if err := cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	awaitRollUp(t, apiservers.Kube, rollup.Degraded, rollup.True, rollup.PluginError)
	if _, err := kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(ctx, apiservers.EncryptionSecret, metav1.GetOptions{}); err == nil {
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
	answered, told := first(writesOf(t, reporterUser)), first(operatorWrites(t))
	const intervals = 2 * time.Second
	if after := told.Sub(answered); after > intervals {
		t.Errorf("told %s after the API server took the first report, must be at most %s", after, intervals)
	} else {
		t.Logf("told %s after the API server took the first report", after.Round(time.Millisecond))
	}
	c := awaitRollUp(t, apiservers.Kube, rollup.Degraded, rollup.True, rollup.PluginError)
	eventually(t, "all three nodes say so", func() error {
		if c = resource(t, apiservers.Kube).Conditions[rollup.Degraded]; !strings.Contains(c.Message, "key 1 on all 3 nodes: error: ") {
			return errors.New(c.Message)
		}
		return nil
	})
	// The plugins of each pod are known from before, though no Secret tells.
	awaitRollUp(t, apiservers.Kube, rollup.Observed, rollup.True, rollup.AsExpected)
	awaitRollUp(t, apiservers.Kube, rollup.WriteKeyAgreed, rollup.Unknown, rollup.PluginIll)

	if err := plugin.Return(); err != nil {
		t.Fatal(err)
	}
	awaitHealthy(t)
	done(t, h, reporters)
}
