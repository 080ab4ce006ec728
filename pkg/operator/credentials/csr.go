package credentials

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pending is a pending request. Its key is only in memory: an operator that was
// restarted makes another request.
type pending struct {
	uid types.UID
	key *ecdsa.PrivateKey
}

func (p *pending) pem() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, errors.New("encode the private key of a certificate")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// CSRName is the name of the CertificateSigningRequest for a Secret. It is always the
// same, so that a role can name it and no request is left behind.
func CSRName(namespace, secret string) string { return secret + "." + namespace }

// newRequest makes a key, and a request for a certificate of it.
func (m *Manager) newRequest(ctx context.Context, want Request, s *state) (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a private key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: User}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	name := CSRName(want.Namespace, want.Secret)
	made, err := m.client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: want.Labels},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: new(int32(CertificateLifetime / time.Second)),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return nil, fmt.Errorf("create CertificateSigningRequest %s: %w", name, err)
	}
	s.pending, s.tidied = &pending{uid: made.UID, key: key}, false
	return made, nil
}

// request returns the request for a Secret, nil where there is none.
func (m *Manager) request(ctx context.Context, key types.NamespacedName) (*certificatesv1.CertificateSigningRequest, error) {
	name := CSRName(key.Namespace, key.Name)
	live, err := m.client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CertificateSigningRequest %s: %w", name, err)
	}
	return live, nil
}

// discard drops the pending request, which tidy then deletes.
func (s *state) discard() { s.pending, s.tidied = nil, false }

// tidy deletes a request that nothing waits for, also one from before a restart of the
// operator. It reads once after each request that was made.
func (m *Manager) tidy(ctx context.Context, key types.NamespacedName, s *state) error {
	if s.tidied {
		return nil
	}
	live, err := m.request(ctx, key)
	if err == nil && live != nil {
		err = m.deleteRequest(ctx, live)
	}
	if err != nil {
		return err
	}
	s.pending, s.tidied = nil, true
	return nil
}

func (m *Manager) deleteRequest(ctx context.Context, live *certificatesv1.CertificateSigningRequest) error {
	err := m.client.CertificatesV1().CertificateSigningRequests().Delete(ctx, live.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &live.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete CertificateSigningRequest %s: %w", live.Name, err)
	}
	return nil
}

// approve approves a request that this process made, and no other of its name.
func (m *Manager) approve(ctx context.Context, live *certificatesv1.CertificateSigningRequest) error {
	approved := live.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "OwnRequest", Message: "The operator approves the request that it made.",
	})
	_, err := m.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, live.Name, approved, metav1.UpdateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %s: %w", live.Name, err)
	}
	return nil
}

// refusal returns why no certificate will be issued for a request, and since when; nil
// where one may be.
func refusal(live *certificatesv1.CertificateSigningRequest) (p *Problem, at time.Time) {
	for _, c := range live.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return &Problem{Reason: ReasonRequestDenied, Message: fmt.Sprintf("CertificateSigningRequest %s was denied (%s: %s)", live.Name, c.Reason, c.Message)}, c.LastUpdateTime.Time
		case certificatesv1.CertificateFailed:
			return &Problem{Reason: ReasonRenewalFailed, Message: fmt.Sprintf("CertificateSigningRequest %s failed (%s: %s)", live.Name, c.Reason, c.Message)}, c.LastUpdateTime.Time
		}
	}
	return nil, time.Time{}
}
