//go:build integration

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

func newCertificateOperator(t *testing.T, approve bool) *operator {
	t.Helper()
	o := newOperator(t, cluster, v1alpha1.CredentialsClientCertificate)
	o.want.Approve = approve
	return o
}

func (o *operator) certificate() controlplane.Credential {
	o.t.Helper()
	return controlplane.Credential{Certificate: &controlplane.KeyPair{Cert: []byte(o.data(corev1.TLSCertKey)), Key: []byte(o.data(corev1.TLSPrivateKeyKey))}}
}

// live is the operator's request, nil where there is none.
func (o *operator) live() *certificatesv1.CertificateSigningRequest {
	o.t.Helper()
	csr, err := o.admin.CertificatesV1().CertificateSigningRequests().Get(soon(o.t), o.csr(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return csr
}

func (o *operator) judge(kind certificatesv1.RequestConditionType) {
	o.t.Helper()
	csr := o.live()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Judged", Message: "by an administrator",
	})
	if _, err := o.admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(soon(o.t), csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *operator) tidied() {
	o.t.Helper()
	if csr := o.live(); csr != nil {
		o.t.Errorf("CertificateSigningRequest %s is still there: %+v", csr.Name, csr.Status.Conditions)
	}
}

func TestCertificateIsRenewedAtHalfItsLife(t *testing.T) {
	o := newCertificateOperator(t, true)
	o.must(credentials.ReasonProgressing, false)
	if spec := o.live().Spec; time.Duration(*spec.ExpirationSeconds)*time.Second != credentials.CertificateLifetime {
		t.Errorf("asks for %d seconds", *spec.ExpirationSeconds)
	}
	o.settle()
	first := o.certificate()
	o.mustBe(certificateUser, first)
	o.tidied()
	secret, next := o.secret(), o.must("", true).RenewAt
	// The signer gives no more than its own CA has left.
	pair, err := tls.X509KeyPair(first.Certificate.Cert, first.Certificate.Key)
	if err != nil || secret.Type != corev1.SecretTypeTLS || next.Sub(pair.Leaf.NotBefore) != pair.Leaf.NotAfter.Sub(next) {
		t.Errorf("a Secret of type %s, to be renewed at %v, %v", secret.Type, next, err)
	}
	o.mustBeUnchanged()
	o.restart()
	o.mustBeUnchanged()
	o.clock.SetTime(next.Add(-time.Second))
	o.mustBeUnchanged()

	o.clock.SetTime(next)
	o.must("", true)
	eventually(t, "another certificate is there", func() error {
		if _, reason := o.try(); reason != "" || o.data(corev1.TLSCertKey) == string(first.Certificate.Cert) {
			return fmt.Errorf("the certificate is the same, %s", reason)
		}
		return nil
	})
	o.clock.SetTime(time.Now()) // which the new one's dates go by
	o.mustBe(certificateUser, o.certificate())
	o.mustBe(certificateUser, first)
	if string(o.certificate().Certificate.Key) == string(first.Certificate.Key) {
		t.Error("the key is the same")
	}
	o.settle()
	o.mustBeUnchanged()
	o.tidied()

	o.overwrite(func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = []byte("garbage") })
	o.must(credentials.ReasonProgressing, false)
	o.settle()
	o.mustBe(certificateUser, o.certificate())
}

func TestCertificateWaitsForAnAdministratorAndItsProblemHasTheCommand(t *testing.T) {
	o := newCertificateOperator(t, false)
	o.must(credentials.ReasonAwaitingApproval, false)
	before := len(o.writes())
	o.must(credentials.ReasonAwaitingApproval, false)
	if got := o.writes()[before:]; len(got) > 0 {
		t.Errorf("writes while it waits: %v", got)
	}
	// The key of the request is gone with the operator that made it.
	uid := o.live().UID
	o.restart()
	result := o.must(credentials.ReasonAwaitingApproval, false)
	if o.live().UID == uid {
		t.Error("waits for a certificate of a key that it does not have")
	}
	if want := "`kubectl certificate approve " + o.csr() + "`"; !strings.Contains(result.Problem.Message, want) {
		t.Fatalf("the message lacks %s: %s", want, result.Problem.Message)
	}
	kubectl(t, "certificate", "approve", o.csr())
	o.settle()
	o.mustBe(certificateUser, o.certificate())
	o.tidied()
	o.mustBeUnchanged()
	o.mustForget()
}

// kubectl runs it as the administrator.
func kubectl(t *testing.T, args ...string) {
	t.Helper()
	path, err := cluster.WriteKubeconfig(t.TempDir(), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: cluster.RESTConfig().BearerToken}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), append([]string{"--kubeconfig", path}, args...)...)
	command.Env = append(os.Environ(), "HOME="+t.TempDir()) // its cache
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestDeniedRequestIsReportedAndMadeAgainMuchLater(t *testing.T) {
	o := newCertificateOperator(t, false)
	o.must(credentials.ReasonAwaitingApproval, false)
	o.judge(certificatesv1.CertificateDenied)
	denied := o.live().UID
	before := len(o.writes())
	for range 2 {
		result := o.must(credentials.ReasonRequestDenied, false)
		if !strings.Contains(result.Problem.Message, "denied (Judged: by an administrator)") {
			t.Error(result.Problem.Message)
		}
		o.restart() // which does not make it forget
	}
	o.after(59 * time.Minute)
	o.must(credentials.ReasonRequestDenied, false)
	if got := o.writes()[before:]; len(got) > 0 {
		t.Errorf("writes after a denial: %v", got)
	}
	o.after(2 * time.Minute)
	o.must(credentials.ReasonAwaitingApproval, false)
	if o.live().UID == denied {
		t.Error("the denied request is still there")
	}
	o.mustForget()
}

// mustForget wants nothing to be left of a credential, however often it is called.
func (o *operator) mustForget() {
	o.t.Helper()
	for range 2 {
		existed := o.secret() != nil
		if deleted, err := o.manager.Forget(soon(o.t), o.want.Namespace, o.want.Secret, true); err != nil || deleted != existed {
			o.t.Errorf("deleted %v, want %v: %v", deleted, existed, err)
		}
		o.tidied()
		if o.secret() != nil {
			o.t.Error("the Secret is still there")
		}
	}
}

// Another user's earlier request with the operator's name must not be approved.
func TestRequestOfAnotherUserIsNotApproved(t *testing.T) {
	o := newCertificateOperator(t, true)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: certificateUser}}, key)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := o.admin.CertificatesV1().CertificateSigningRequests().Create(soon(t), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: o.csr()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.must(credentials.ReasonProgressing, false)
	if csr := o.live(); csr != nil && csr.UID == theirs.UID {
		t.Fatalf("the request of another user still exists: %+v", csr.Status)
	}
	o.settle()
	o.mustBe(certificateUser, o.certificate())
}

func TestIssuedCertificateIsKeptUntilItsSecretCanBeWritten(t *testing.T) {
	o := newCertificateOperator(t, true)
	o.revoke("write")
	o.must(credentials.ReasonProgressing, false)
	uid := o.live().UID
	eventually(t, "the certificate is issued", func() error {
		if csr := o.live(); len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("%+v", csr.Status.Conditions)
		}
		return nil
	})
	for range 2 {
		if result := o.must(credentials.ReasonRenewalFailed, false); !apierrors.IsForbidden(result.Problem) {
			t.Error(result.Problem)
		}
	}
	issued := o.live()
	if issued == nil || issued.UID != uid {
		t.Fatal("the request was recreated")
	}
	o.grant("write")
	o.must("", true)
	if o.data(corev1.TLSCertKey) != string(issued.Status.Certificate) {
		t.Error("the Secret holds another certificate")
	}
	o.mustBe(certificateUser, o.certificate())
	o.tidied()
	o.mustBeUnchanged()
}
