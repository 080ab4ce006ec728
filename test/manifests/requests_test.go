//go:build integration

package manifests

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
)

func TestEveryKindOfCredentialsIsMadeWithTheRightsOfItsComponent(t *testing.T) {
	for _, c := range []struct {
		kind       v1alpha1.Credentials
		components []string
		waits      bool // for an administrator
	}{
		{v1alpha1.CredentialsMintedToken, []string{"deployment"}, false},
		{v1alpha1.CredentialsLegacyToken, []string{"deployment", "legacy-token"}, false},
		{v1alpha1.CredentialsClientCertificate, []string{"deployment", "client-certificates"}, true},
		{v1alpha1.CredentialsClientCertificate, []string{"deployment", "client-certificates", "client-certificates/approve"}, false},
	} {
		t.Run(string(c.kind)+fmt.Sprintf(" waits %t", c.waits), func(t *testing.T) {
			openshift.with(t, c.components...)
			secret := reporter + "-" + strings.ToLower(string(c.kind))
			openshift.expect(t, question{"get", "secrets", kas, secret}, true)
			openshift.expect(t, question{"create", "serviceaccounts/token", kas, reporter}, true)
			if c.kind == v1alpha1.CredentialsClientCertificate {
				openshift.expect(t, question{"create", "certificatesigningrequests.certificates.k8s.io", "", ""}, true)
				openshift.expect(t, question{"approve", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"}, !c.waits)
			}
			config := openshift.as(t)
			if err := put(t, config, object("v1", "ServiceAccount", kas, reporter, nil), false); err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			m := credentials.New(client, clock.RealClock{})
			want := credentials.Request{Kind: c.kind, Namespace: kas, Secret: secret, ServiceAccount: reporter, Approve: !c.waits}
			eventually(t, "it is made", func() error {
				result := m.Ensure(t.Context(), want)
				switch {
				case c.waits && result.Problem != nil && result.Problem.Reason == credentials.ReasonAwaitingApproval:
					return nil
				case c.waits || !result.Ready || result.Problem != nil:
					return fmt.Errorf("%+v, %w", result, result.Problem)
				}
				return nil
			})
			if _, err := m.Forget(t.Context(), kas, secret, c.kind == v1alpha1.CredentialsClientCertificate); err != nil {
				t.Error(err)
			}
			if err := client.CoreV1().ServiceAccounts(kas).Delete(t.Context(), reporter, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

const (
	certificateName = reporter + "-clientcertificate." + kas
	reportersUser   = "system:kms-health-reporter"
)

// csr is a request with these parts.
func csr(t *testing.T, name, signer string, block *pem.Block) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(block), SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func certificateRequest(t *testing.T, template *x509.CertificateRequest, key crypto.Signer) *pem.Block {
	t.Helper()
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}
}

func of(names pkix.Name) *x509.CertificateRequest { return &x509.CertificateRequest{Subject: names} }

func TestOperatorAsksForCertificatesOfTheReportersUserAndNoOther(t *testing.T) {
	openshift.with(t, "deployment", "client-certificates")
	openshift.expect(t, question{"create", "certificatesigningrequests.certificates.k8s.io", "", ""}, true)
	client, err := kubernetes.NewForConfig(openshift.as(t))
	if err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
		_, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, r, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	const signer = certificatesv1.KubeAPIServerClientSignerName
	good := func() *pem.Block { return certificateRequest(t, of(pkix.Name{CommonName: reportersUser}), nil) }
	for name, c := range map[string]struct {
		request *certificatesv1.CertificateSigningRequest
		why     string
	}{
		"an administrator":    {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: "system:admin"}), nil)), "of no other user"},
		"a longer name":       {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: reportersUser + "s"}), nil)), "of no other user"},
		"one as long":         {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: "system:kms-health-repORTER"}), nil)), "of no other user"},
		"an organization":     {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: reportersUser, Organization: []string{"a-group"}}), nil)), "of no other user"},
		"no name":             {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{}), nil)), "of no other user"},
		"a second name":       {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: reportersUser, ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: "system:admin"}}}), nil)), "of no other user"},
		"another kind of key": {csr(t, certificateName, signer, certificateRequest(t, of(pkix.Name{CommonName: reportersUser}), rsaKey)), "of no other user"},
		"alternative names":   {csr(t, certificateName, signer, certificateRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: reportersUser}, DNSNames: []string{"a"}}, nil)), "of no other user"},
		"headers":             {csr(t, certificateName, signer, &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: good().Bytes, Headers: map[string]string{"a": "b"}}), ""},
		"another signer":      {csr(t, certificateName, "kubernetes.io/kubelet-serving", good()), "and no other"},
		"a name of its own":   {csr(t, "mine", signer, good()), "are named"},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, "it is refused", func() error {
				err := create(t.Context(), c.request)
				if err == nil {
					return errors.New("it was accepted")
				}
				if !strings.Contains(err.Error(), c.why) {
					return err
				}
				return nil
			})
		})
	}
	// The length of an ECDSA signature varies by some bytes.
	for range 200 {
		if err := create(t.Context(), csr(t, certificateName, signer, good())); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOperatorApprovesItsOwnRequestsAndNoOther(t *testing.T) {
	openshift.with(t, "deployment", "client-certificates", "client-certificates/approve")
	openshift.expect(t, question{"create", "certificatesigningrequests.certificates.k8s.io", "", ""}, true)
	openshift.expect(t, question{"update", "certificatesigningrequests.certificates.k8s.io/approval", "", certificateName}, true)
	openshift.expect(t, question{"approve", "signers.certificates.k8s.io", "", certificatesv1.KubeAPIServerClientSignerName}, true)
	config := openshift.as(t)
	operator, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	approve := func(live *certificatesv1.CertificateSigningRequest) error {
		live = live.DeepCopy()
		live.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "Test",
		}}
		_, err := operator.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), live.Name, live, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	request := func(who kubernetes.Interface, user string) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		requests := who.CertificatesV1().CertificateSigningRequests()
		live, err := requests.Create(t.Context(), csr(t, certificateName, certificatesv1.KubeAPIServerClientSignerName, certificateRequest(t, of(pkix.Name{CommonName: user}), nil)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	remove := func() {
		t.Helper()
		if err := openshift.kube.CertificatesV1().CertificateSigningRequests().Delete(t.Context(), certificateName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		who  kubernetes.Interface
		user string
		why  string
	}{
		"another user's, for the reporters": {openshift.kube, reportersUser, "made itself"},
		"another user's, for themselves":    {openshift.kube, "system:admin", "made itself"},
	} {
		t.Run(name, func(t *testing.T) {
			live := request(c.who, c.user)
			defer remove()
			eventually(t, "it is refused", func() error {
				err := approve(live)
				if err == nil {
					return errors.New("it was approved")
				}
				if !strings.Contains(err.Error(), c.why) {
					return err
				}
				return nil
			})
		})
	}
	t.Run("its own, for another user, without the other policy", func(t *testing.T) {
		bindings := openshift.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		if err := bindings.Delete(t.Context(), "kms-health-operator-requests", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		var live *certificatesv1.CertificateSigningRequest
		eventually(t, "the other policy is deleted", func() (err error) {
			live, err = operator.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
				csr(t, certificateName, certificatesv1.KubeAPIServerClientSignerName, certificateRequest(t, of(pkix.Name{CommonName: "system:admin"}), nil)), metav1.CreateOptions{})
			return err
		})
		defer remove()
		if err := approve(live); err == nil || !strings.Contains(err.Error(), "of no other user") {
			t.Errorf("%v", err)
		}
	})
	t.Run("its own", func(t *testing.T) {
		live := request(operator, reportersUser)
		defer remove()
		if err := approve(live); err != nil {
			t.Error(err)
		}
	})
}
