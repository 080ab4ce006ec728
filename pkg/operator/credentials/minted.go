package credentials

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// TokenKey is the key of a token in its Secret, minted or legacy: the name of the
// file that a reporter reads.
const TokenKey = corev1.ServiceAccountTokenKey

// TokenLifetime is what is asked for. A server may give less
// (--service-account-max-token-expiration), and what it gives counts.
const TokenLifetime = 30 * 24 * time.Hour

// Annotations of a minted token's Secret. Times are RFC 3339, by the operator's
// clock both: a clock that is wrong by days does not shorten a token's life.
const (
	IssuedAtAnnotation          = "kmshealth.openshift.io/issued-at"
	ExpiresAtAnnotation         = "kmshealth.openshift.io/expires-at"
	ServiceAccountUIDAnnotation = "kmshealth.openshift.io/service-account-uid"
)

// Due says whether the token of a Secret is to be replaced, and why. A Secret
// that is nil is one that is not there.
func Due(secret *corev1.Secret, now time.Time, account types.UID) (due bool, reason string) {
	switch {
	case secret == nil:
		return true, "there is no Secret"
	case len(secret.Data[TokenKey]) == 0:
		return true, "the Secret has no token"
	case secret.Annotations[ServiceAccountUIDAnnotation] != string(account):
		return true, "the token is another ServiceAccount's"
	}
	next := Next(secret.ObjectMeta)
	switch {
	case next.IsZero():
		return true, "the Secret does not say when its token ends"
	case !now.Before(next):
		return true, "half its life is over"
	}
	return false, ""
}

// Next is when the token of a Secret is to be renewed: at half its life. Zero
// when its annotations do not tell.
func Next(secret metav1.ObjectMeta) time.Time {
	issued, expires, ok := life(secret)
	if !ok {
		return time.Time{}
	}
	return issued.Add(expires.Sub(issued) / 2)
}

func life(secret metav1.ObjectMeta) (issued, expires time.Time, ok bool) {
	issued, err1 := time.Parse(time.RFC3339, secret.Annotations[IssuedAtAnnotation])
	expires, err2 := time.Parse(time.RFC3339, secret.Annotations[ExpiresAtAnnotation])
	return issued, expires, err1 == nil && err2 == nil && expires.After(issued)
}

// works says whether a token that is due can still be used.
func works(secret *corev1.Secret, now time.Time, account types.UID) bool {
	if secret == nil || len(secret.Data[TokenKey]) == 0 || secret.Annotations[ServiceAccountUIDAnnotation] != string(account) {
		return false
	}
	_, expires, ok := life(secret.ObjectMeta)
	return ok && now.Before(expires)
}

func (m *Manager) mintedToken(ctx context.Context, want Request, secret *corev1.Secret) (Result, error) {
	account, err := m.serviceAccount(ctx, want)
	if err != nil {
		return m.failed(false, err)
	}
	if account == "" {
		return m.accountMissing(want), nil
	}
	now := m.clock.Now()
	due, reason := Due(secret, now, account)
	if !due {
		return m.asExpected(Next(secret.ObjectMeta)), nil
	}
	ready := works(secret, now, account)
	minted, err := m.client.CoreV1().ServiceAccounts(want.Namespace).CreateToken(ctx, want.ServiceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(TokenLifetime / time.Second))},
	}, metav1.CreateOptions{})
	if err != nil {
		return m.failed(ready, fmt.Errorf("mint a token of ServiceAccount %s/%s (%s): %w", want.Namespace, want.ServiceAccount, reason, err))
	}
	made := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{TokenKey: []byte(minted.Status.Token)}).
		WithAnnotations(map[string]string{
			IssuedAtAnnotation:          now.UTC().Format(time.RFC3339),
			ExpiresAtAnnotation:         now.Add(granted(minted, now)).UTC().Format(time.RFC3339),
			ServiceAccountUIDAnnotation: string(account),
		})
	if err := m.apply(ctx, want, made); err != nil {
		return m.failed(ready, err)
	}
	return m.asExpected(now.Add(granted(minted, now) / 2)), nil
}

// granted is how long a new token lives. The answer's seconds are what the server
// gave (k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage), and need no
// clock of ours.
func granted(minted *authenticationv1.TokenRequest, now time.Time) time.Duration {
	if s := minted.Spec.ExpirationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return minted.Status.ExpirationTimestamp.Sub(now)
}
