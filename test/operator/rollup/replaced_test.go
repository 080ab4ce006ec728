//go:build integration

package rollup

import (
	"context"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// On a single node, a plugin removes its socket before its API server ends. After that the operator's watch of the
// operator resource may recover before the watch of pods: nodeStatuses names a revision that the pod does not have yet.
func TestASocketThatWasRemovedWithItsPodIsExcused(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil, "1s")
	ended := reporters[1]
	replace(t, ended.Node)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	must.Succeed(t, ended.Plugin.Close())
	fixture.AwaitEqual(t, "the socket is reported as missing", contract.SocketMissing, func() contract.Reason {
		return fixture.LastChecked(t, apiservers.Kube, ended.Node).Reason
	})
	fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, operatorstatus.Unknown, contract.PluginUnhealthy)
	must.Succeed(t, seen.None("KMSPluginsDegraded True"))
	// The watch of pods shows the new revision, and the socket is still missing.
	pods := fixture.Kube.CoreV1().Pods(apiservers.Kube.Namespace)
	_, err := pods.Patch(t.Context(), "kube-apiserver-"+ended.Node, types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"revision": "2"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginError)
}

// A rollout by a static pod operator is stuck, and the plugin was reported as not listening. A restart of the operator
// must not excuse it.
func TestARestartExcusesNoSocketOfAStandingReplacement(t *testing.T) {
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, nil, "1s")
	ended := reporters[1]
	must.Succeed(t, ended.Plugin.Close())
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginError)
	op.Kill(syscall.SIGTERM)
	replace(t, ended.Node) // a process that sees this begin excuses the socket for 5 minutes
	op.Run(op.Credentials())
	fixture.StaysEqual(t, 20*time.Second, operatorstatus.True, func() string {
		return fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded].Status
	})
}

// replace writes nodeStatuses with another revision than the node's pod has, until the test ends.
func replace(t *testing.T, node string) {
	t.Helper()
	list := func(ctx context.Context, statuses ...any) {
		t.Helper()
		must.Succeed(t, apiservers.PutNodeStatuses(ctx, fixture.Client, statuses...))
	}
	t.Cleanup(func() { list(context.Background()) })
	list(t.Context(), map[string]any{"nodeName": node}) // openshift/api's CRD requires that this comes first
	list(t.Context(), map[string]any{"nodeName": node, "currentRevision": 2})
}
