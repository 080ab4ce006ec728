//go:build integration

package process

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestUnmanagedChangesNothing(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	op.Configure(fixture.KubeAPIServer("Auto"))
	op.Start("")
	fixture.AwaitDelivered(t, "kubeapiservers")
	before, err := fixture.Describe(t.Context(), fixture.UsualKind)
	if err != nil {
		t.Fatal(err)
	}
	op.Configure("managementState: Unmanaged\n" + fixture.KubeAPIServer("Auto"))
	op.AwaitLogged("it is configured", `managementState="Unmanaged"`, 1)
	// A rollout: the companions stand beside pods that have ended.
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "2")
	fixture.RollStatic(t, "2", false)
	for _, pod := range fixture.AwaitPods(t, fixture.Namespace, "kmshealth.openshift.io/mode=CompanionPod", 3) {
		fixture.ReportBy(t, apiservers.Kube, pod.Spec.NodeName, string(pod.UID), contract.Error, time.Now())
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", contract.Unmanaged)
	if c := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded]; c.Status != "False" {
		t.Errorf("%+v", c)
	}
	gone := fixture.PodUIDs(t, "kmshealth.openshift.io/mode=CompanionPod")
	for name := range gone {
		if err := fixture.Kube.CoreV1().Pods(fixture.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		break
	}
	fixture.Eventually(t, "the pod is deleted", func() error {
		if n := len(fixture.PodUIDs(t, "kmshealth.openshift.io/mode=CompanionPod")); n != len(gone)-1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	after, err := fixture.Describe(t.Context(), fixture.UsualKind)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before)-1 {
		t.Errorf("there were\n%s\nthere are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// An operator that starts before everything else: no file, no API server.
func TestStartsWithoutFileAndAPIServer(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	kubeconfig := op.Credentials("")
	if err := fixture.Cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			if err := fixture.Cluster.ThawAPIServer(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(thaw)
	op.Run(kubeconfig)
	op.Configure("this: is no configuration of ours\n")
	op.AwaitLogged("the bad file is reported", `"Rejected the configuration`, 1)
	op.Configure(fixture.KubeAPIServer("Auto"))
	thaw()
	fixture.AwaitDelivered(t, "kubeapiservers")
	// The last good file stays active.
	op.ConfigureRaw("garbage")
	op.AwaitLogged("the bad file is reported", `"Rejected the configuration`, 2)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("2", "identity"), "2")
	fixture.RollStatic(t, "2", false)
	fixture.Eventually(t, "it goes on by the last good file", func() error {
		lines, err := fixture.Describe(t.Context(), fixture.UsualKind)
		if err == nil && strings.Count(strings.Join(lines, "\n"), "2W every 30s") != 4 { // of three pods, and the ConfigMap
			err = fmt.Errorf("%v", lines)
		}
		return err
	})
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

func TestNamespaceThatIsMissingIsWaitedFor(t *testing.T) {
	const ns = "openshift-oauth-apiserver"
	op := fixture.NewOperator(t)
	fixture.Excuse(func(e *auditv1.Event) bool { return strings.Contains(e.RequestURI, "/namespaces/"+ns+"/") })
	if err := fixture.Kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	missing := func() error {
		_, err := fixture.Kube.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("it is there")
		default:
			return err
		}
	}
	fixture.Eventually(t, "the namespace is deleted", missing)
	restored := false
	restore := func() {
		if restored {
			return
		}
		restored = true
		ctx, cancel := context.WithTimeout(context.Background(), 2*fixture.Timeout)
		defer cancel()
		if err := fixture.InstallOperator(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	op.Configure(fixture.Targets(apiservers.OAuth.Target("mode: Sidecar", "deployment: apiserver")))
	op.Start("")
	fixture.AwaitCondition(t, "authentications", "False", "NamespaceMissing")
	op.Configure(fixture.Targets(apiservers.OAuth.Target("mode: Sidecar")))
	fixture.Never(t, 3*time.Second, func() error {
		if _, reason, message := fixture.Condition(t.Context(), "authentications"); reason != "NamespaceMissing" {
			return fmt.Errorf("%s: %s", reason, message)
		}
		return nil
	})
	restore()
	fixture.SetEncryption(t, apiservers.OAuth, apiservers.Encryption("1", "identity"))
	fixture.AwaitCondition(t, "authentications", "False", "NoReporters") // it has no pods
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

func TestProvidersThatAreNotProbedAreReported(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, strings.ReplaceAll(apiservers.Encryption("1", "identity"), "apiVersion: v2", "apiVersion: v1"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	op.Configure(fixture.KubeAPIServer("Auto"))
	op.Start("")
	for _, kind := range []string{contract.HealthReporting, contract.PluginsDegraded} {
		status := map[string]string{contract.HealthReporting: "False", contract.PluginsDegraded: "Unknown"}[kind]
		c := fixture.AwaitRollUp(t, apiservers.Kube, kind, status, contract.ProviderNotProbed)
		if !strings.Contains(c.Message, "1_secrets") {
			t.Errorf("%+v", c)
		}
	}
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}
