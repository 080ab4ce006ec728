//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/apiservers"
)

// kubeAPIServer is a configuration of that one alone.
func kubeAPIServer(delivery string) string {
	return targets(apiservers.Kube.Target("delivery: " + delivery))
}

func TestNewDeliveryReportsBeforeTheOldGoes(t *testing.T) {
	target, resource := apiservers.Kube, apiservers.Kube.Resource
	h := newHouse(t)
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", true)
	t.Cleanup(func() { removeStatics(t) })
	for _, node := range nodeNames {
		report(t, target, node, time.Now())
	}
	t.Cleanup(func() { unreport(t, target) })
	h.configure(kubeAPIServer("Companion"))
	h.start("")
	awaitCondition(t, resource, "True", "Configured")
	companions := podUIDs(t, "kmshealth.openshift.io/delivery=Companion")

	h.configure(kubeAPIServer("DaemonSet"))
	awaitPods(t, home, "kmshealth.openshift.io/delivery=DaemonSet", 3)
	awaitCondition(t, resource, "False", "Progressing")
	for _, node := range nodeNames[1:] {
		report(t, target, node, time.Now().Add(time.Second))
	}
	// An operator that is killed in between goes on from there.
	h.kill(syscall.SIGKILL)
	h.start("")
	if _, reason, message := condition(t.Context(), resource); reason != "Progressing" || !strings.Contains(message, "Companion") {
		t.Errorf("%s: %s", reason, message)
	}
	if now := podUIDs(t, "kmshealth.openshift.io/delivery=Companion"); len(now) != len(companions) {
		t.Errorf("companions went before all agents reported: %v of %v", now, companions)
	}
	report(t, target, nodeNames[0], time.Now().Add(time.Second))
	awaitCondition(t, resource, "True", "Configured")
	eventually(t, "the companions go", func() error {
		if now := podUIDs(t, "kmshealth.openshift.io/delivery=Companion"); len(now) > 0 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}

func TestCredentialsAreRenewedWithoutARolloutAndReplacedWithOne(t *testing.T) {
	target, ns, resource := apiservers.OpenShift, apiservers.OpenShift.Namespace, apiservers.OpenShift.Resource
	h := newHouse(t, "--approve-certificates")
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	apiDeployment(t, "1")
	t.Cleanup(func() { removeDeployment(t) })
	awaitPods(t, ns, "apiserver=true", 3)
	h.configure(targets(openShiftAPIServer()))
	h.start("")
	awaitCondition(t, resource, "True", "Configured")
	awaitPods(t, ns, "apiserver=true", 3)
	generation := deploymentNow(t).Generation

	// A token of which half its life is over. The operator looks with its next pass.
	secret := func(kind string) *corev1.Secret {
		t.Helper()
		s, err := kube.CoreV1().Secrets(ns).Get(t.Context(), "kms-health-reporter-"+target.Name+"-"+kind, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	age := func(kind string) *corev1.Secret {
		t.Helper()
		s := secret(kind)
		s.Annotations["kmshealth.openshift.io/issued-at"] = time.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
		s.Annotations["kmshealth.openshift.io/expires-at"] = time.Now().Add(10 * 24 * time.Hour).UTC().Format(time.RFC3339)
		s, err := kube.CoreV1().Secrets(ns).Update(t.Context(), s, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := age("mintedtoken")
	h.configure(every("20s", openShiftAPIServer())) // a pass
	eventually(t, "the token is renewed", func() error {
		if now := secret("mintedtoken"); string(now.Data["token"]) == string(old.Data["token"]) {
			return fmt.Errorf("the same token, of %s", now.Annotations["kmshealth.openshift.io/issued-at"])
		}
		return nil
	})
	if now := deploymentNow(t).Generation; now != generation {
		t.Errorf("a renewed token made %d rollouts", now-generation)
	}

	// Another kind: one rollout, and the old stays until the new reports.
	byCertificate := openShiftAPIServer("credentials: ClientCertificate")
	h.configure(targets(byCertificate))
	eventually(t, "the certificate is there", func() error {
		if s := secret("clientcertificate"); s == nil || len(s.Data["tls.crt"]) == 0 {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	eventually(t, "the pods mount it", func() error {
		for _, p := range awaitPods(t, ns, "apiserver=true", 3) {
			if !strings.Contains(fmt.Sprint(p.Spec.Volumes), "clientcertificate") {
				return fmt.Errorf("%s does not", p.Name)
			}
		}
		return nil
	})
	if secret("mintedtoken") == nil {
		t.Error("the old credentials went before the new reported")
	}
	if _, reason, _ := condition(t.Context(), resource); reason != "Progressing" {
		t.Errorf("%s", reason)
	}
	for _, node := range nodeNames {
		report(t, target, node, time.Now().Add(time.Second))
	}
	t.Cleanup(func() { unreport(t, target) })
	eventually(t, "the old credentials go", func() error {
		if secret("mintedtoken") != nil {
			return fmt.Errorf("still there")
		}
		return nil
	})
	awaitCondition(t, resource, "True", "Configured")
	if now := deploymentNow(t).Generation; now != generation+1 {
		t.Errorf("another kind of credentials made %d rollouts, must be 1", now-generation)
	}

	// A certificate that cannot be used is renewed like one of which half is over.
	spoiled := secret("clientcertificate")
	spoiled.Data["tls.crt"] = []byte("spoiled")
	if _, err := kube.CoreV1().Secrets(ns).Update(t.Context(), spoiled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.configure(every("25s", byCertificate)) // a pass
	eventually(t, "the certificate is renewed", func() error {
		if s := secret("clientcertificate"); !strings.HasPrefix(string(s.Data["tls.crt"]), "-----BEGIN CERTIFICATE") {
			return fmt.Errorf("%s", s.Data["tls.crt"])
		}
		return nil
	})
	if now := deploymentNow(t).Generation; now != generation+1 {
		t.Errorf("a renewed certificate made %d rollouts", now-generation-1)
	}
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}

func TestUnmanagedChangesNothing(t *testing.T) {
	h := newHouse(t)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	h.configure(kubeAPIServer("Auto"))
	h.start("")
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	before, err := describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.configure("managementState: Unmanaged\n" + kubeAPIServer("Auto"))
	eventually(t, "it is configured", func() error {
		if !strings.Contains(h.logged(), `managementState="Unmanaged"`) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	setEncryption(t, apiservers.Kube, apiservers.Encryption("2", "identity"), "2")
	rollStatic(t, "2", false)
	gone := podUIDs(t, "kmshealth.openshift.io/delivery=Companion")
	for name := range gone {
		if err := kube.CoreV1().Pods(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		break
	}
	eventually(t, "the pod is gone", func() error {
		if n := len(podUIDs(t, "kmshealth.openshift.io/delivery=Companion")); n != len(gone)-1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	after, err := describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before)-1 {
		t.Errorf("there were\n%s\nthere are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}

// An operator that starts before everything else: no file, no API server.
func TestStartsWithoutFileAndAPIServer(t *testing.T) {
	h := newHouse(t)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	kubeconfig := h.credentials("")
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
	h.run(kubeconfig)
	h.configure("this: is no configuration of ours\n")
	eventually(t, "the bad file is told", func() error {
		if !strings.Contains(h.logged(), `"Not taken`) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	h.configure(kubeAPIServer("Auto"))
	thaw()
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	// The last good file stays in force.
	h.configureRaw("garbage")
	eventually(t, "the bad file is told", func() error {
		if strings.Count(h.logged(), `"Not taken`) < 2 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	setEncryption(t, apiservers.Kube, apiservers.Encryption("2", "identity"), "2")
	rollStatic(t, "2", false)
	eventually(t, "it goes on by the last good file", func() error {
		lines, err := describe(t.Context())
		if err == nil && strings.Count(strings.Join(lines, "\n"), "2W every 30s") != 3 {
			err = fmt.Errorf("%v", lines)
		}
		return err
	})
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}

func TestNamespaceThatIsMissingIsWaitedFor(t *testing.T) {
	const ns = "openshift-oauth-apiserver"
	h := newHouse(t)
	namespaceDeleted.Store(true)
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
	eventually(t, "the namespace is gone", missing)
	restored := false
	restore := func() {
		if restored {
			return
		}
		restored = true
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		if err := setUp(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	h.configure(`targets:
- name: oauth-apiserver
  resource: authentications
  namespace: openshift-oauth-apiserver
  podSelector: {apiserver: "true"}
  delivery: External
`)
	h.start("")
	awaitCondition(t, "authentications", "Unknown", "NamespaceMissing")
	restore()
	setEncryption(t, apiservers.OAuth, apiservers.Encryption("1", "identity"))
	awaitCondition(t, "authentications", "True", "Configured")
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}

func TestProvidersThatAreNotProbedAreTold(t *testing.T) {
	h := newHouse(t)
	setEncryption(t, apiservers.Kube, strings.ReplaceAll(apiservers.Encryption("1", "identity"), "apiVersion: v2", "apiVersion: v1"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	h.configure(kubeAPIServer("Auto"))
	h.start("")
	eventually(t, "an Event names the provider", func() error {
		events, err := kube.CoreV1().Events(home).List(t.Context(), metav1.ListOptions{})
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
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}
