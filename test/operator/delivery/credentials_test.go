//go:build integration

package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestCredentialsAreRenewedWithoutARolloutAndReplacedWithOne(t *testing.T) {
	target, ns, resource := apiservers.OpenShift, apiservers.OpenShift.Namespace, apiservers.OpenShift.Resource
	op := fixture.NewOperator(t, "--approve-certificates")
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	fixture.ApplyDeployment(t, "1")
	t.Cleanup(func() { fixture.RemoveDeployment(t) })
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	op.Configure(fixture.Targets(fixture.OpenShiftAPIServer()))
	op.Start("")
	fixture.AwaitCondition(t, resource, "True", "Configured")
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation

	// A token of which half its life is over. The operator finds it at its next sync.
	secret := func(kind string) *corev1.Secret {
		t.Helper()
		s, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), "kms-health-reporter-"+target.Name+"-"+kind, metav1.GetOptions{})
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
		s, err := fixture.Kube.CoreV1().Secrets(ns).Update(t.Context(), s, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := age("mintedtoken")
	op.Configure(fixture.Every("20s", fixture.OpenShiftAPIServer())) // a sync
	fixture.Eventually(t, "the token is renewed", func() error {
		if now := secret("mintedtoken"); string(now.Data["token"]) == string(old.Data["token"]) {
			return fmt.Errorf("the same token, of %s", now.Annotations["kmshealth.openshift.io/issued-at"])
		}
		return nil
	})
	if now := fixture.DeploymentNow(t).Generation; now != generation {
		t.Errorf("a renewed token made %d rollouts", now-generation)
	}

	// Another kind: one rollout, and the old stays until the new reports.
	byCertificate := fixture.OpenShiftAPIServer("credentials: ClientCertificate")
	op.Configure(fixture.Targets(byCertificate))
	fixture.Eventually(t, "the certificate is there", func() error {
		if s := secret("clientcertificate"); s == nil || len(s.Data["tls.crt"]) == 0 {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	fixture.Eventually(t, "the pods mount it", func() error {
		for _, p := range fixture.AwaitPods(t, ns, "apiserver=true", 3) {
			if !strings.Contains(fmt.Sprint(p.Spec.Volumes), "clientcertificate") {
				return fmt.Errorf("%s does not", p.Name)
			}
		}
		return nil
	})
	if secret("mintedtoken") == nil {
		t.Error("the old credentials were deleted before the new reporter reported")
	}
	if _, reason, _ := fixture.Condition(t.Context(), resource); reason != "Progressing" {
		t.Errorf("%s", reason)
	}
	for _, node := range fixture.NodeNames {
		fixture.Report(t, target, node, time.Now().Add(time.Second))
	}
	fixture.Eventually(t, "the old credentials go", func() error {
		if secret("mintedtoken") != nil {
			return fmt.Errorf("still there")
		}
		return nil
	})
	fixture.AwaitCondition(t, resource, "True", "Configured")
	if now := fixture.DeploymentNow(t).Generation; now != generation+1 {
		t.Errorf("another kind of credentials made %d rollouts, must be 1", now-generation)
	}

	// A certificate that cannot be used is renewed like one of which half is over.
	spoiled := secret("clientcertificate")
	spoiled.Data["tls.crt"] = []byte("spoiled")
	if _, err := fixture.Kube.CoreV1().Secrets(ns).Update(t.Context(), spoiled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	op.Configure(fixture.Every("25s", byCertificate)) // a sync
	fixture.Eventually(t, "the certificate is renewed", func() error {
		if s := secret("clientcertificate"); !strings.HasPrefix(string(s.Data["tls.crt"]), "-----BEGIN CERTIFICATE") {
			return fmt.Errorf("%s", s.Data["tls.crt"])
		}
		return nil
	})
	if now := fixture.DeploymentNow(t).Generation; now != generation+1 {
		t.Errorf("a renewed certificate made %d rollouts", now-generation-1)
	}
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}
