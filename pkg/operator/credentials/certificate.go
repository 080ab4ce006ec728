package credentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// User is the user of a client certificate: its common name. The certificate of one
// target is good for every target that trusts this user.
const User = "system:kms-health-reporter"

// CertificateLifetime is the requested lifetime. A signer may issue a shorter one
// (--cluster-signing-duration), which counts.
const CertificateLifetime = 365 * 24 * time.Hour

// refusedFor is how long a request that was denied, or that failed, is kept before
// another is made, so that an administrator can read why.
const refusedFor = time.Hour

// certificateValidity returns the validity of the certificate in a Secret, which is nil
// if it does not exist, or an error why it cannot be used. Errors contain nothing from
// the Secret.
func certificateValidity(secret *corev1.Secret) (validity, error) {
	if secret == nil {
		return validity{}, errors.New("there is no Secret")
	}
	data, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(data) == 0 || len(key) == 0 {
		return validity{}, errors.New("the Secret lacks a certificate or a key")
	}
	pair, err := tls.X509KeyPair(data, key)
	switch {
	case err != nil:
		return validity{}, errors.New("the certificate and its key cannot be parsed, or do not belong together")
	case pair.Leaf.Subject.CommonName != User:
		return validity{}, errors.New("the certificate is for another user")
	}
	return lasting(pair.Leaf.NotBefore, pair.Leaf.NotAfter), nil
}

func (m *Manager) clientCertificate(ctx context.Context, want Request, s *state, secret *corev1.Secret) (validity, error) {
	current, _ := certificateValidity(secret)
	if !current.due(m.clock.Now()) {
		return current, m.tidy(ctx, want.key(), s)
	}
	certificate, own, err := m.pursue(ctx, want, s)
	if err != nil {
		return current, err
	}
	return m.store(ctx, want, s, current, certificate, own)
}

// pursue advances the request for a certificate by one step. It returns the certificate
// once it is issued, with the request's key; until then a *Problem.
func (m *Manager) pursue(ctx context.Context, want Request, s *state) ([]byte, *pending, error) {
	live, err := m.request(ctx, want.key())
	if err != nil {
		return nil, nil, err
	}
	if live != nil {
		refused, at := refusal(live)
		if again := at.Add(refusedFor); refused != nil && m.clock.Now().Before(again) {
			s.discard()
			refused.Message += "; another request is made at " + again.UTC().Format(time.RFC3339)
			refused.after = min(checkInterval, again.Sub(m.clock.Now()))
			return nil, nil, refused
		}
		// A request that this process has no key of is from before a restart of the
		// operator, or another user's, who must not get this operator's approval.
		if refused != nil || s.pending == nil || live.UID != s.pending.uid {
			if err := m.deleteRequest(ctx, live); err != nil {
				return nil, nil, err
			}
			live = nil
		}
	}
	if live == nil {
		if live, err = m.newRequest(ctx, want, s); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case len(live.Status.Certificate) > 0:
		return live.Status.Certificate, s.pending, nil
	case slices.ContainsFunc(live.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	}):
		return nil, nil, progressing("kube-controller-manager has not signed CertificateSigningRequest %s yet", live.Name)
	case want.Approve:
		if err := m.approve(ctx, live); err != nil {
			return nil, nil, err
		}
		return nil, nil, progressing("CertificateSigningRequest %s is approved and not signed yet", live.Name)
	}
	return nil, nil, &Problem{Reason: ReasonAwaitingApproval, after: later, Message: fmt.Sprintf(
		"CertificateSigningRequest %s awaits approval: run `oc adm certificate approve %[1]s` or `kubectl certificate approve %[1]s`", live.Name)}
}

// store writes an issued certificate and its key into the Secret. If that fails, both
// are kept for the next call.
func (m *Manager) store(ctx context.Context, want Request, s *state, current validity, certificate []byte, own *pending) (validity, error) {
	key, err := own.pem()
	if err != nil {
		return current, err
	}
	data := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	issued, err := certificateValidity(&corev1.Secret{Data: data})
	if err != nil {
		return current, fmt.Errorf("the certificate issued for CertificateSigningRequest %s cannot be used: %w", CSRName(want.Namespace, want.Secret), err)
	}
	desired := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeTLS).WithData(data)
	if err := m.apply(ctx, want, desired); err != nil {
		return current, err
	}
	s.discard()
	return issued, m.tidy(ctx, want.key(), s)
}
