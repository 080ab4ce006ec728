//go:build integration

package rollup

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// On a single node a plugin removes its socket before its API server ends. Then the operator's watch of its resource may
// come back before the watch of pods: nodeStatuses names a revision that the pod does not have yet.
func TestASocketThatWasRemovedWithItsPodIsExcused(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil, "1s")
	ended := reporters[1]
	replace(t, ended.Node)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	if err := ended.Plugin.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the socket is reported as missing", func() error {
		if e := fixture.LastChecked(t, apiservers.Kube, ended.Node); e.Reason != contract.SocketMissing {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, operatorstatus.Unknown, contract.PluginUnhealthy)
	if found := seen.With(contract.PluginsDegraded, operatorstatus.True); len(found) > 0 {
		t.Errorf("%q", found)
	}
	// The watch of pods shows it, and the socket is still not there.
	pods := fixture.Kube.CoreV1().Pods(apiservers.Kube.Namespace)
	if _, err := pods.Patch(t.Context(), "kube-apiserver-"+ended.Node, types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"revision": "2"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginError)
	fixture.RemoveTarget(t, op, reporters)
}

// A static pod operator does not get on, and the plugin is known not to listen: another process of this operator knows
// no more.
func TestARestartExcusesNoSocketOfAStandingReplacement(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil, "1s")
	ended := reporters[1]
	if err := ended.Plugin.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginError)
	op.Kill(syscall.SIGTERM)
	replace(t, ended.Node) // which a process that ran would excuse for 5 minutes, and no longer
	op.Start("")
	fixture.Never(t, 20*time.Second, func() error {
		if c := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded]; c.Status != operatorstatus.True {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.RemoveTarget(t, op, reporters)
}

// replace lists a node with another revision than its pod has, until the test ends.
func replace(t *testing.T, node string) {
	t.Helper()
	list := func(ctx context.Context, statuses ...any) {
		t.Helper()
		if err := apiservers.PutNodeStatuses(ctx, fixture.Client, statuses...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { list(context.Background()) })
	list(t.Context(), map[string]any{"nodeName": node}) // as openshift/api's CRD requires
	list(t.Context(), map[string]any{"nodeName": node, "currentRevision": 2})
}
