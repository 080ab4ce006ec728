//go:build integration

package delivery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// credential is the name of the Secret with the token of openshift-apiserver's reporters.
const credential = "kms-health-reporter-openshift-apiserver-token"

// Unmanaged changes no workload. What expires is renewed all the same.
func TestUnmanagedRenewsCredentialsAndCA(t *testing.T) {
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	fixture.ApplyDeployment(t, "1")
	t.Cleanup(func() { fixture.RemoveDeployment(t) })
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	op.Configure(fixture.Targets(fixture.OpenShiftAPIServer()))
	op.Start("")
	fixture.AwaitDelivered(t, target.Resource)
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation
	const unmanaged = "managementState: Unmanaged\n"
	op.Configure(unmanaged + fixture.Targets(fixture.OpenShiftAPIServer()))
	op.AwaitLogged("it is configured", `managementState="Unmanaged"`, 1)

	old, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), credential, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Annotations[contract.IssuedAtAnnotation] = time.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
	old.Annotations[contract.ExpiresAtAnnotation] = time.Now().Add(10 * 24 * time.Hour).UTC().Format(time.RFC3339)
	if _, err := fixture.Kube.CoreV1().Secrets(ns).Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := controlplane.NewCA("another")
	if err != nil {
		t.Fatal(err)
	}
	bundle := append(fixture.Cluster.ServingCA().PEM(), other.PEM()...)
	if err := os.WriteFile(filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	op.Configure(unmanaged + fixture.Every("20s", fixture.OpenShiftAPIServer()))
	fixture.Eventually(t, "the token is renewed", func() error {
		now, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), credential, metav1.GetOptions{})
		if err == nil && string(now.Data["token"]) == string(old.Data["token"]) {
			err = fmt.Errorf("the same token, of %s", now.Annotations[contract.IssuedAtAnnotation])
		}
		return err
	})
	fixture.Eventually(t, "the CA is renewed", func() error {
		file, err := fixture.Kube.CoreV1().ConfigMaps(ns).Get(t.Context(), setName(target, "1"), metav1.GetOptions{})
		if err == nil && !carries(file.Data, other.PEM()) {
			err = fmt.Errorf("%v", file.Data)
		}
		return err
	})
	lines, err := fixture.Describe(t.Context(), fixture.UsualKind)
	if text := strings.Join(lines, "\n"); err != nil || !strings.Contains(text, "1W every 30s") {
		t.Errorf("the interval was changed too: %v\n%s", err, text)
	}
	if now := fixture.DeploymentNow(t).Generation; now != generation {
		t.Errorf("the Deployment was changed: generation %d, was %d", now, generation)
	}
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// carries reports whether one of the files contains a CA: directly, or in a kubeconfig.
func carries(files map[string]string, ca []byte) bool {
	for _, file := range files {
		if strings.Contains(file, string(ca)) {
			return true
		}
		for line := range strings.Lines(file) {
			if _, data, ok := strings.Cut(strings.TrimSpace(line), "certificate-authority-data: "); ok && strings.Contains(decoded(data), string(ca)) {
				return true
			}
		}
	}
	return false
}

// awaitWarning waits for a Warning event of a reason, after a time, with a text in it.
func awaitWarning(t *testing.T, reason string, since time.Time, text string) {
	t.Helper()
	fixture.Eventually(t, "a Warning event "+reason, func() error {
		events, err := fixture.Kube.CoreV1().Events(fixture.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range events.Items {
			if e.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
				continue
			}
			if e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
				return nil
			}
			others = append(others, e.Type+" "+e.Reason)
		}
		return fmt.Errorf("there are %v", others)
	})
}
