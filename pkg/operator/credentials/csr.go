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

// pending is a request under way. Its key is nowhere else: an operator that is
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

// CSRName is the name of the CertificateSigningRequest for a Secret: always the
// same, so that a role may name it, and that none is left lying about.
func CSRName(namespace, secret string) string { return secret + "." + namespace }

// newRequest makes a key, and a request for a certificate of it.
func (m *Manager) newRequest(ctx context.Context, want Request) (*certificatesv1.CertificateSigningRequest, *pending, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a private key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: User}}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
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
		return nil, nil, fmt.Errorf("create CertificateSigningRequest %s: %w", name, err)
	}
	p := &pending{uid: made.UID, key: key}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[want.key()] = p
	m.tidied[want.key()] = false
	return made, p, nil
}

// request returns the one for a Secret, nil where there is none.
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

// ownRequest returns what we have for a request that we made, nil for any other.
func (m *Manager) ownRequest(key types.NamespacedName, live *certificatesv1.CertificateSigningRequest) *pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pending[key]
	if p == nil || live == nil || live.UID != p.uid {
		return nil
	}
	return p
}

func (m *Manager) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, key)
	m.tidied[key] = false
}

// tidy deletes a request that nothing waits for, also one of an earlier run. It
// looks once for each that is made.
func (m *Manager) tidy(ctx context.Context, key types.NamespacedName) error {
	m.mu.Lock()
	done := m.tidied[key]
	m.mu.Unlock()
	if done {
		return nil
	}
	live, err := m.request(ctx, key)
	if err == nil && live != nil {
		err = m.deleteRequest(ctx, live)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, key)
	m.tidied[key] = true
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

// approve is for a request that we made, and for no other of its name.
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

// refusal returns the reason of a request that leads to nothing, empty for one
// that may, with what is said of it and when.
func refusal(live *certificatesv1.CertificateSigningRequest) (reason, why string, at time.Time) {
	for _, c := range live.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return ReasonRequestDenied, fmt.Sprintf("denied (%s: %s)", c.Reason, c.Message), c.LastUpdateTime.Time
		case certificatesv1.CertificateFailed:
			return ReasonRequestFailed, fmt.Sprintf("failed (%s: %s)", c.Reason, c.Message), c.LastUpdateTime.Time
		}
	}
	return "", "", time.Time{}
}

func hasCondition(live *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	for _, c := range live.Status.Conditions {
		if c.Type == kind {
			return true
		}
	}
	return false
}
