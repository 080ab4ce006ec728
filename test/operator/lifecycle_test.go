//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// kubeAPIServer is a configuration of that one alone.
func kubeAPIServer(delivery string) string {
	return targets(apiservers.Kube.Target("delivery: " + delivery))
}

func TestNewDeliveryReportsBeforeTheOldGoes(t *testing.T) {
	target, resource := apiservers.Kube, apiservers.Kube.Resource
	op := newOperator(t)
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", true)
	t.Cleanup(func() { removeStatics(t) })
	for _, node := range nodeNames {
		report(t, target, node, time.Now())
	}
	op.configure(kubeAPIServer("Companion"))
	op.start("")
	awaitCondition(t, resource, "True", "Configured")
	companions := podUIDs(t, "kmshealth.openshift.io/delivery=Companion")

	op.configure(kubeAPIServer("DaemonSet"))
	awaitPods(t, operatorNamespace, "kmshealth.openshift.io/delivery=DaemonSet", 3)
	awaitCondition(t, resource, "False", "Progressing")
	for _, node := range nodeNames[1:] {
		report(t, target, node, time.Now().Add(time.Second))
	}
	// An operator that is killed in between goes on from there.
	op.kill(syscall.SIGKILL)
	op.start("")
	if _, reason, message := condition(t.Context(), resource); reason != "Progressing" || !strings.Contains(message, "Companion") {
		t.Errorf("%s: %s", reason, message)
	}
	if now := podUIDs(t, "kmshealth.openshift.io/delivery=Companion"); len(now) != len(companions) {
		t.Errorf("companions were deleted before all agents reported: %v of %v", now, companions)
	}
	report(t, target, nodeNames[0], time.Now().Add(time.Second))
	awaitCondition(t, resource, "True", "Configured")
	eventually(t, "the companions go", func() error {
		if now := podUIDs(t, "kmshealth.openshift.io/delivery=Companion"); len(now) > 0 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

func TestUnmanagedChangesNothing(t *testing.T) {
	op := newOperator(t)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	op.configure(kubeAPIServer("Auto"))
	op.start("")
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	before, err := describe(t.Context(), usualKind)
	if err != nil {
		t.Fatal(err)
	}
	op.configure("managementState: Unmanaged\n" + kubeAPIServer("Auto"))
	op.awaitLogged("it is configured", `managementState="Unmanaged"`, 1)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("2", "identity"), "2")
	rollStatic(t, "2", false)
	gone := podUIDs(t, "kmshealth.openshift.io/delivery=Companion")
	for name := range gone {
		if err := kube.CoreV1().Pods(operatorNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		break
	}
	eventually(t, "the pod is deleted", func() error {
		if n := len(podUIDs(t, "kmshealth.openshift.io/delivery=Companion")); n != len(gone)-1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	after, err := describe(t.Context(), usualKind)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before)-1 {
		t.Errorf("there were\n%s\nthere are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

// An operator that starts before everything else: no file, no API server.
func TestStartsWithoutFileAndAPIServer(t *testing.T) {
	op := newOperator(t)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	kubeconfig := op.credentials("")
	if err := cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			if err := cluster.ThawAPIServer(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(thaw)
	op.run(kubeconfig)
	op.configure("this: is no configuration of ours\n")
	op.awaitLogged("the bad file is reported", `"Rejected the configuration`, 1)
	op.configure(kubeAPIServer("Auto"))
	thaw()
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	// The last good file stays in force.
	op.configureRaw("garbage")
	op.awaitLogged("the bad file is reported", `"Rejected the configuration`, 2)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("2", "identity"), "2")
	rollStatic(t, "2", false)
	eventually(t, "it goes on by the last good file", func() error {
		lines, err := describe(t.Context(), usualKind)
		if err == nil && strings.Count(strings.Join(lines, "\n"), "2W every 30s") != 3 {
			err = fmt.Errorf("%v", lines)
		}
		return err
	})
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

func TestNamespaceThatIsMissingIsWaitedFor(t *testing.T) {
	const ns = "openshift-oauth-apiserver"
	op := newOperator(t)
	excuse(func(e *auditv1.Event) bool { return strings.Contains(e.RequestURI, "/namespaces/"+ns+"/") })
	if err := kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	missing := func() error {
		_, err := kube.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("it is there")
		default:
			return err
		}
	}
	eventually(t, "the namespace is deleted", missing)
	restored := false
	restore := func() {
		if restored {
			return
		}
		restored = true
		ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
		defer cancel()
		if err := installOperator(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	op.configure(targets(apiservers.OAuth.Target("delivery: Deployment", "deployment: apiserver")))
	op.start("")
	awaitCondition(t, "authentications", "Unknown", "NamespaceMissing")
	op.configure(targets(apiservers.OAuth.Target("delivery: External")))
	never(t, 3*time.Second, func() error {
		if _, reason, message := condition(t.Context(), "authentications"); reason != "NamespaceMissing" {
			return fmt.Errorf("%s: %s", reason, message)
		}
		return nil
	})
	restore()
	setEncryption(t, apiservers.OAuth, apiservers.Encryption("1", "identity"))
	awaitCondition(t, "authentications", "False", "NoReporters") // it has no pods
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

func TestProvidersThatAreNotProbedAreReported(t *testing.T) {
	op := newOperator(t)
	setEncryption(t, apiservers.Kube, strings.ReplaceAll(apiservers.Encryption("1", "identity"), "apiVersion: v2", "apiVersion: v1"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	op.configure(kubeAPIServer("Auto"))
	op.start("")
	eventually(t, "an Event names the provider", func() error {
		events, err := kube.CoreV1().Events(operatorNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "ProvidersIgnored" && strings.Contains(e.Message, "1_secrets") {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(events.Items))
	})
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
