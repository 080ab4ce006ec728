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

	"github.com/kms-health/kms-health/pkg/contract"
)

// TokenKey is the key of a token in its Secret: the name of the file that a reporter
// reads.
const TokenKey = corev1.ServiceAccountTokenKey

// TokenLifetime is the requested lifetime. The server may grant a shorter one
// (--service-account-max-token-expiration), which counts.
const TokenLifetime = 30 * 24 * time.Hour

// tokenValidity returns the validity of the token in a Secret. A token of an earlier
// ServiceAccount of the same name does not work, and one without its dates is replaced.
func tokenValidity(secret *corev1.Secret, account types.UID) validity {
	if len(secret.Data[TokenKey]) == 0 || secret.Annotations[contract.ServiceAccountUIDAnnotation] != string(account) {
		return validity{}
	}
	issued, err1 := time.Parse(time.RFC3339, secret.Annotations[contract.IssuedAtAnnotation])
	expires, err2 := time.Parse(time.RFC3339, secret.Annotations[contract.ExpiresAtAnnotation])
	if err1 != nil || err2 != nil || !expires.After(issued) {
		return validity{}
	}
	return lasting(issued, expires)
}

// request requests a token, and writes it into the Secret. What an earlier version wrote
// besides is removed.
func (m *Manager) request(ctx context.Context, want Request, account types.UID) (validity, error) {
	now := m.now()
	issued, err := m.client.CoreV1().ServiceAccounts(want.Namespace).CreateToken(ctx, want.ServiceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(TokenLifetime / time.Second))},
	}, metav1.CreateOptions{})
	if err != nil {
		return validity{}, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	expires := now.Add(granted(issued, now))
	desired := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeOpaque).WithLabels(want.Labels).
		WithData(map[string][]byte{TokenKey: []byte(issued.Status.Token)}).
		WithAnnotations(map[string]string{
			contract.IssuedAtAnnotation:          now.UTC().Format(time.RFC3339),
			contract.ExpiresAtAnnotation:         expires.UTC().Format(time.RFC3339),
			contract.ServiceAccountUIDAnnotation: string(account),
		})
	options := metav1.ApplyOptions{FieldManager: contract.OperatorName, Force: true}
	if _, err := m.client.CoreV1().Secrets(want.Namespace).Apply(ctx, desired, options); err != nil {
		return validity{}, fmt.Errorf("write Secret %s: %w", want.key(), err)
	}
	return lasting(now, expires), nil
}

// granted is the lifetime of a new token. The seconds in the response are what the server
// granted (k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage), and do not depend
// on this process's clock.
func granted(issued *authenticationv1.TokenRequest, now time.Time) time.Duration {
	if s := issued.Spec.ExpirationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return issued.Status.ExpirationTimestamp.Sub(now)
}
