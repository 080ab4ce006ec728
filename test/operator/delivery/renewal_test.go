//go:build integration

package delivery

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// credential is the name of a Secret with the credentials of openshift-apiserver's
// reporters.
func credential(kind string) string { return "kms-health-reporter-openshift-apiserver-" + kind }

// agedCertificate is one of the reporters' user of which more than half its life is over.
func agedCertificate(t *testing.T, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: credentials.User},
		NotBefore: time.Now().Add(-300 * 24 * time.Hour), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// decide approves or denies the certificate request of openshift-apiserver's reporters.
func decide(t *testing.T, decision certificatesv1.RequestConditionType) {
	t.Helper()
	name := credentials.CSRName(apiservers.OpenShift.Namespace, credential("clientcertificate"))
	fixture.Eventually(t, "the request is "+string(decision), func() error {
		request, err := fixture.Kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: decision, Status: corev1.ConditionTrue, Reason: "ByTest", Message: "decided by the test",
		})
		_, err = fixture.Kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), name, request, metav1.UpdateOptions{})
		return err
	})
}

// A renewal that waits for an administrator is reported while the old certificate is
// still good.
func TestRenewalThatAwaitsApprovalIsReportedInTime(t *testing.T) {
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	byCertificate := fixture.OpenShiftAPIServer("credentials: ClientCertificate")
	op := fixture.NewOperator(t)
	metric := op.ServeMetrics()
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	fixture.ApplyDeployment(t, "1")
	t.Cleanup(func() { fixture.RemoveDeployment(t) })
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	began := time.Now()
	op.Configure(fixture.Targets(byCertificate))
	op.Start("")
	fixture.AwaitReason(t, target, "AwaitingApproval")
	awaitWarning(t, "AwaitingApproval", began, "kubectl certificate approve")
	decide(t, certificatesv1.CertificateApproved)
	fixture.AwaitCondition(t, target.Resource, "True", "Configured")
	secret := func() *corev1.Secret {
		t.Helper()
		s, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), credential("clientcertificate"), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	labels := []string{`target="` + target.Name + `"`, `secret="` + credential("clientcertificate") + `"`}
	expiry := func(s *corev1.Secret) time.Time {
		block, _ := pem.Decode(s.Data["tls.crt"])
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c.NotAfter
	}
	const metricName = "kms_health_operator_credential_expiry_timestamp_seconds"
	sample := func(at time.Time) {
		t.Helper()
		fixture.Eventually(t, metricName+" is "+at.String(), func() error {
			for have, value := range metric(metricName) {
				var seconds float64
				if _, err := fmt.Sscan(value, &seconds); err == nil && int64(seconds) == at.Unix() &&
					strings.Contains(have, labels[0]) && strings.Contains(have, labels[1]) {
					return nil
				}
			}
			return fmt.Errorf("%v", metric(metricName))
		})
	}
	sample(expiry(secret()))

	// More than half its life is over, and it is good for a month.
	notAfter := time.Now().Add(30 * 24 * time.Hour).Truncate(time.Second)
	aged := secret()
	aged.Data["tls.crt"], aged.Data["tls.key"] = agedCertificate(t, notAfter)
	if _, err := fixture.Kube.CoreV1().Secrets(ns).Update(t.Context(), aged, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	op.Configure(fixture.Every("20s", byCertificate)) // nothing is known of Secrets but by a sync
	expires := notAfter.UTC().Format(time.RFC3339)
	message := fixture.AwaitReason(t, target, "AwaitingApproval")
	if !strings.Contains(message, expires) || !strings.Contains(message, "kubectl certificate approve") {
		t.Errorf("without the expiry or what to do: %s", message)
	}
	awaitWarning(t, "AwaitingApproval", began, expires)
	sample(notAfter)
	decide(t, certificatesv1.CertificateDenied)
	op.Configure(fixture.Every("25s", byCertificate))
	fixture.AwaitReason(t, target, "RequestDenied")
	awaitWarning(t, "RequestDenied", began, "decided by the test")
	if got := expiry(secret()); !got.Equal(notAfter) {
		t.Errorf("the certificate that is good was replaced by one until %s", got)
	}
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}

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
	fixture.AwaitCondition(t, target.Resource, "True", "Configured")
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation
	const unmanaged = "managementState: Unmanaged\n"
	op.Configure(unmanaged + fixture.Targets(fixture.OpenShiftAPIServer()))
	op.AwaitLogged("it is configured", `managementState="Unmanaged"`, 1)

	old, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), credential("mintedtoken"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Annotations["kmshealth.openshift.io/issued-at"] = time.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
	old.Annotations["kmshealth.openshift.io/expires-at"] = time.Now().Add(10 * 24 * time.Hour).UTC().Format(time.RFC3339)
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
		now, err := fixture.Kube.CoreV1().Secrets(ns).Get(t.Context(), credential("mintedtoken"), metav1.GetOptions{})
		if err == nil && string(now.Data["token"]) == string(old.Data["token"]) {
			err = fmt.Errorf("the same token, of %s", now.Annotations["kmshealth.openshift.io/issued-at"])
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
	op.Configure("targets: []\n")
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
