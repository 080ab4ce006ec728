package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// User is whom a client certificate is for: its common name. The certificate of
// one target is good for every target that trusts this user.
const User = "system:kms-health-reporter"

// CertificateLifetime is what is asked for. A signer may give less
// (--cluster-signing-duration), and what it gives counts.
const CertificateLifetime = 365 * 24 * time.Hour

const (
	// approvalPoll is how often to look whether an administrator has approved.
	approvalPoll = 30 * time.Second
	// refusedFor is how long a request that was denied, or that failed, stays
	// before another is made: people can read why, and no one is pestered.
	refusedFor = time.Hour
)

// CertificateDue says whether the certificate of a Secret is to be replaced, and
// why. A Secret that is nil is one that is not there.
func CertificateDue(secret *corev1.Secret, now time.Time) (due bool, reason string) {
	if secret == nil {
		return true, "there is no Secret"
	}
	certificate, err := parse(secret)
	switch {
	case err != nil:
		return true, err.Error()
	case !now.Before(renewal(certificate)):
		return true, "half its life is over"
	}
	return false, ""
}

// CertificateNext is when the certificate of a Secret is to be renewed: at half
// its life, by its own dates. Zero when it cannot be used.
func CertificateNext(secret *corev1.Secret) time.Time {
	certificate, err := parse(secret)
	if err != nil {
		return time.Time{}
	}
	return renewal(certificate)
}

func renewal(certificate *x509.Certificate) time.Time {
	return certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)
}

// parse returns the certificate of a Secret that could be used, were it the time.
// Its errors say nothing of what is in there.
func parse(secret *corev1.Secret) (*x509.Certificate, error) {
	data, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(data) == 0 || len(key) == 0 {
		return nil, errors.New("the Secret lacks a certificate or a key")
	}
	pair, err := tls.X509KeyPair(data, key)
	switch {
	case err != nil:
		return nil, errors.New("the Secret's certificate and key cannot be parsed, or do not belong together")
	case pair.Leaf.Subject.CommonName != User:
		return nil, errors.New("the certificate is another user's")
	}
	return pair.Leaf, nil
}

func (m *Manager) clientCertificate(ctx context.Context, want Request, secret *corev1.Secret) (Result, error) {
	now := m.clock.Now()
	due, reason := CertificateDue(secret, now)
	if !due {
		return m.asExpected(CertificateNext(secret)), m.tidy(ctx, want.key())
	}
	ready := false
	if secret != nil {
		certificate, err := parse(secret)
		ready = err == nil && now.Before(certificate.NotAfter)
	}
	result, err := m.pursue(ctx, want, ready)
	if err != nil {
		return m.failed(ready, fmt.Errorf("renew the certificate in Secret %s (%s): %w", want.key(), reason, err))
	}
	return result, nil
}

// pursue brings a request for a certificate one step on.
func (m *Manager) pursue(ctx context.Context, want Request, ready bool) (Result, error) {
	live, err := m.request(ctx, want.key())
	if err != nil {
		return Result{}, err
	}
	own := m.ownRequest(want.key(), live)
	if live != nil {
		refused, why, at := refusal(live)
		if again := at.Add(refusedFor); refused != "" && m.clock.Now().Before(again) {
			m.forget(want.key())
			result := m.waits(ready, refused, fmt.Sprintf("CertificateSigningRequest %s: %s; another is made at %s", live.Name, why, again.UTC().Format(time.RFC3339)), lookAgain)
			if again.Before(result.Next) {
				result.Next = again
			}
			return result, nil
		}
		// One that we have no key of is of an operator that was restarted, or
		// somebody else's, whom we must not make a reporter of.
		if refused != "" || own == nil {
			if err := m.deleteRequest(ctx, live); err != nil {
				return Result{}, err
			}
			live = nil
		}
	}
	if live == nil {
		if live, own, err = m.newRequest(ctx, want); err != nil {
			return Result{}, err
		}
	}
	switch {
	case len(live.Status.Certificate) > 0:
		return m.keep(ctx, want, live.Status.Certificate, own)
	case hasCondition(live, certificatesv1.CertificateApproved):
		return m.waits(ready, ReasonAwaitingSigner, "kube-controller-manager has not signed CertificateSigningRequest "+live.Name+" yet", soon), nil
	case want.Approve:
		if err := m.approve(ctx, live); err != nil {
			return Result{}, err
		}
		return m.waits(ready, ReasonAwaitingSigner, "CertificateSigningRequest "+live.Name+" is approved", soon), nil
	default:
		return m.waits(ready, ReasonAwaitingApproval, "an administrator must run: kubectl certificate approve "+live.Name, approvalPoll), nil
	}
}

// keep puts an issued certificate and its key into the Secret. When that fails,
// both are still there for the next time.
func (m *Manager) keep(ctx context.Context, want Request, certificate []byte, own *pending) (Result, error) {
	key, err := own.pem()
	if err != nil {
		return Result{}, err
	}
	data := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	issued, err := parse(&corev1.Secret{Data: data})
	if err != nil {
		return Result{}, fmt.Errorf("the signer's answer to CertificateSigningRequest %s: %w", CSRName(want.Namespace, want.Secret), err)
	}
	made := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeTLS).WithData(data)
	if err := m.apply(ctx, want, made); err != nil {
		return Result{}, err
	}
	m.forget(want.key())
	return m.asExpected(renewal(issued)), m.tidy(ctx, want.key())
}
