package credentials

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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

// Manager keeps tokens in Secrets. Ensure and Forget may be called from several
// goroutines, but not for one Secret at a time.
type Manager struct {
	client kubernetes.Interface
	now    func() time.Time

	mu   sync.Mutex
	last map[types.NamespacedName]validity // as read last
}

// New makes a Manager. now is the time by the API server's clock, which dates tokens.
func New(client kubernetes.Interface, now func() time.Time) *Manager {
	return &Manager{client: client, now: now, last: map[types.NamespacedName]validity{}}
}

// Ensure creates the token, or renews it when that is due. It needs nothing but the
// ServiceAccount and the rights to its objects; whether the target's workloads are
// managed makes no difference to it.
func (m *Manager) Ensure(ctx context.Context, want Request) Result {
	v, err := m.renew(ctx, want)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[want.key()] = v
	return v.result(want, err, m.now())
}

// renew reads the token, and renews it if that is due. If it cannot be read, it is as it was
// read last.
func (m *Manager) renew(ctx context.Context, want Request) (validity, error) {
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
	account, err := m.client.CoreV1().ServiceAccounts(want.Namespace).Get(ctx, want.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) { // and its tokens work no more
			last = validity{}
		}
		return last, fmt.Errorf("read ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	current := tokenValidity(secret, account.UID)
	if !current.due(m.now()) {
		return current, nil
	}
	renewed, err := m.request(ctx, want, account.UID)
	if err != nil {
		return current, err
	}
	return renewed, nil
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
