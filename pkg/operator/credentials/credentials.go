// Package credentials creates and renews the tokens of reporters in pods of another
// ServiceAccount: by TokenRequest, in a Secret that the pods mount. It reads and writes Secrets by
// name only, so that a role can name them. A write that fails leaves the previous token in place,
// and no token is in a log, an error or a message.
//
// It does not revoke: a token works until it expires, or its ServiceAccount is deleted.
//
// While a KMS plugin is unhealthy, an API server may be unable to read the Secret.
// Nothing is renewed then: a token is renewed at half its life to leave time for it.
package credentials

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kms-health/kms-health/pkg/contract"
)

// TokenKey is the key of a token in its Secret: the name of the file that a reporter
// reads.
const TokenKey = corev1.ServiceAccountTokenKey

const (
	// lifetime is requested, in seconds. The server may grant a shorter one
	// (--service-account-max-token-expiration), which counts.
	lifetime = int64(30 * 24 * time.Hour / time.Second)
	// checkInterval is how often a token that works is checked: Secrets are not watched, so
	// one that was deleted or emptied is found by reading it.
	checkInterval = 10 * time.Minute
	// soon is the delay after an error without a token that works, later with one.
	soon, later = 5 * time.Second, 30 * time.Second
)

// Request is the token that there should be.
type Request struct {
	Namespace string
	// Secret is the name of the Secret that holds the token.
	Secret string
	// ServiceAccount, in the same namespace, is the account that the token is for. It
	// must exist.
	ServiceAccount string
	// Labels of the Secret. Changed ones are written with the next token.
	Labels map[string]string
}

func (r Request) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Secret}
}

// Validity is what is known of the token in a Secret: when it expires, and when it is renewed, at half of
// its life. The zero value means that none works.
type Validity struct{ NotAfter, RenewAt time.Time }

// Manager keeps tokens in Secrets. Ensure and Forget may be called from several
// goroutines, but not for one Secret at a time.
type Manager struct {
	client kubernetes.Interface
	now    func() time.Time

	mu   sync.Mutex
	last map[types.NamespacedName]Validity // as read last
}

// New makes a Manager. now is the time by the API server's clock, which dates tokens.
func New(client kubernetes.Interface, now func() time.Time) *Manager {
	return &Manager{client: client, now: now, last: map[types.NamespacedName]Validity{}}
}

// Ensure creates the token, or renews it when that is due, and returns when to be called again at the
// latest. It needs nothing but the ServiceAccount and the rights to its objects. An error is why there is
// no token, or why the renewal that is due does not go on; while the Secret cannot be read, the
// Validity is as it was read last.
func (m *Manager) Ensure(ctx context.Context, want Request) (v Validity, next time.Duration, err error) {
	v, err = m.renew(ctx, want)
	m.mu.Lock()
	m.last[want.key()] = v
	m.mu.Unlock()
	now, expires := m.now(), v.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case err == nil:
		return v, min(checkInterval, v.RenewAt.Sub(now)), nil
	case v == Validity{}:
		return v, soon, err
	case now.Before(v.NotAfter):
		return v, later, fmt.Errorf("%w; the token in Secret %s expires at %s", err, want.key(), expires)
	}
	return v, soon, fmt.Errorf("%w; the token in Secret %s expired at %s", err, want.key(), expires)
}

// Forget deletes a Secret, and reports whether it existed. Its token works until it
// expires.
func (m *Manager) Forget(ctx context.Context, namespace, secret string) (deleted bool, err error) {
	key := types.NamespacedName{Namespace: namespace, Name: secret}
	err = m.client.CoreV1().Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("delete Secret %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, key)
	return err == nil, nil
}

// renew reads the token, and renews it if that is due. If it cannot be read, it is as it was
// read last.
func (m *Manager) renew(ctx context.Context, want Request) (Validity, error) {
	m.mu.Lock()
	last := m.last[want.key()]
	m.mu.Unlock()
	secret, err := m.client.CoreV1().Secrets(want.Namespace).Get(ctx, want.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return last, fmt.Errorf("read Secret %s: %w", want.key(), err)
	}
	accounts := m.client.CoreV1().ServiceAccounts(want.Namespace)
	account, err := accounts.Get(ctx, want.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) { // and its tokens work no more
			last = Validity{}
		}
		return last, fmt.Errorf("read ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	current, now := tokenValidity(secret, account.UID), m.now()
	if now.Before(current.RenewAt) {
		return current, nil
	}
	token, err := accounts.CreateToken(ctx, want.ServiceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(lifetime)},
	}, metav1.CreateOptions{})
	if err != nil {
		return current, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	renewed, err := m.write(ctx, want, account.UID, token, now)
	if err != nil {
		return current, err
	}
	return renewed, nil
}

// write puts a token into the Secret. What an earlier version wrote besides is removed. The
// seconds in the response are what the server granted
// (k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage), whatever this process's clock is.
func (m *Manager) write(
	ctx context.Context, want Request, account types.UID, token *authenticationv1.TokenRequest, now time.Time,
) (Validity, error) {
	expires := now.Add(time.Duration(ptr.Deref(token.Spec.ExpirationSeconds, lifetime)) * time.Second)
	desired := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeOpaque).WithLabels(want.Labels).
		WithData(map[string][]byte{TokenKey: []byte(token.Status.Token)}).
		WithAnnotations(map[string]string{
			contract.IssuedAtAnnotation:          now.UTC().Format(time.RFC3339),
			contract.ExpiresAtAnnotation:         expires.UTC().Format(time.RFC3339),
			contract.ServiceAccountUIDAnnotation: string(account),
		})
	options := metav1.ApplyOptions{FieldManager: contract.OperatorName, Force: true}
	if _, err := m.client.CoreV1().Secrets(want.Namespace).Apply(ctx, desired, options); err != nil {
		return Validity{}, fmt.Errorf("write Secret %s: %w", want.key(), err)
	}
	return lasting(now, expires), nil
}

// lasting returns the Validity of a token that is renewed at half its life.
func lasting(notBefore, notAfter time.Time) Validity {
	return Validity{NotAfter: notAfter, RenewAt: notBefore.Add(notAfter.Sub(notBefore) / 2)}
}

// tokenValidity returns the Validity of the token in a Secret. A token of an earlier
// ServiceAccount of the same name does not work, and one without its dates is replaced.
func tokenValidity(secret *corev1.Secret, account types.UID) Validity {
	if len(secret.Data[TokenKey]) == 0 || secret.Annotations[contract.ServiceAccountUIDAnnotation] != string(account) {
		return Validity{}
	}
	issued, err1 := time.Parse(time.RFC3339, secret.Annotations[contract.IssuedAtAnnotation])
	expires, err2 := time.Parse(time.RFC3339, secret.Annotations[contract.ExpiresAtAnnotation])
	if err1 != nil || err2 != nil || !expires.After(issued) {
		return Validity{}
	}
	return lasting(issued, expires)
}
