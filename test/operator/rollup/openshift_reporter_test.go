//go:build integration

package rollup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// nativeReporter is OpenShift's own reporter on a node, which writes typed reports.
type nativeReporter struct {
	stop func()
}

// startNativeReporter starts one that reports once a second.
func startNativeReporter(t *testing.T, node string, plugin *kmsplugin.Plugin) *nativeReporter {
	t.Helper()
	r := &nativeReporter{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			o := apiservers.Kube.Status()
			o["status"] = map[string]any{"encryptionStatus": map[string]any{"healthReports": []any{map[string]any{
				"nodeName": node, "keyID": "1", "status": "Healthy", "remoteKeyID": plugin.KeyID(), "lastCheckedTime": time.Now().UTC().Format(time.RFC3339),
			}}}}
			if err := apiservers.Apply(ctx, fixture.Client, "kms-monitor-"+node, controlplane.OperatorGVR(apiservers.Kube.Resource), "", o, "status"); err != nil && ctx.Err() == nil {
				t.Errorf("typed report: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

// staticWithNativeReporter is kube-apiserver's pod with OpenShift's own reporter.
func staticWithNativeReporter() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	pod := fixture.StaticPod("1", false)
	pod.Spec.InitContainers = []corev1.Container{{Name: "kms-health-reporter", Image: "native:1", RestartPolicy: &always}}
	return pod
}

// runStaticBesideCompanion runs a pod in place of that of a node, and waits until it has a
// companion.
func runStaticBesideCompanion(t *testing.T, node string, pod *corev1.Pod) {
	t.Helper()
	companion := func() (uid types.UID) {
		for _, p := range fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, len(fixture.NodeNames)) {
			if p.Spec.NodeName == node {
				uid = p.UID
			}
		}
		return uid
	}
	was := companion()
	fixture.RunStatic(t, node, pod)
	fixture.Eventually(t, "the new pod of "+node+" has a companion", func() error {
		if now := companion(); now == "" || now == was {
			return fmt.Errorf("the companion is %q, was %q", now, was)
		}
		return nil
	})
}

// expectNoAlarm fails the test where KMSPluginsDegraded was not False.
func expectNoAlarm(t *testing.T, what string, seen *fixture.ConditionsSeen) {
	t.Helper()
	for _, alarm := range []string{contract.PluginsDegraded + " True", contract.PluginsDegraded + " Unknown"} {
		for _, found := range seen.With(alarm) {
			t.Errorf("%s: %s", what, found)
		}
	}
}

// An upgrade adds OpenShift's own reporter to the API server's pods, one node after another, and
// a downgrade removes it: every pod has a companion, and no condition reports anything but
// health.
func TestUpgradeToOpenShiftsOwnReporterAndBack(t *testing.T) {
	dir, err := os.MkdirTemp("", "kms") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms.sock"), StateDir: filepath.Join(dir, "key")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	op := fixture.NewOperator(t)
	reporters := fixture.StartReporting(t, op, plugin)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	native := map[string]*nativeReporter{}
	for _, node := range fixture.NodeNames {
		runStaticBesideCompanion(t, node, staticWithNativeReporter())
		native[node] = startNativeReporter(t, node, plugin)
		fixture.AwaitHealthy(t)
	}
	fixture.AwaitDelivered(t, apiservers.Kube.Resource)
	expectNoAlarm(t, "upgrade", seen)

	seen = fixture.RecordConditions(t, apiservers.Kube)
	for _, node := range fixture.NodeNames {
		native[node].stop()
		runStaticBesideCompanion(t, node, fixture.StaticPod("1", false))
		fixture.AwaitHealthy(t)
	}
	fixture.AwaitDelivered(t, apiservers.Kube.Resource)
	expectNoAlarm(t, "downgrade", seen)
	for _, r := range reporters {
		r.Kill(t)
	}
	removeReports(t, apiservers.Kube)
	fixture.RemoveTarget(t, op, reporters)
}
