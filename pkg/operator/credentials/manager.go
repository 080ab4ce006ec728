package credentials

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// FieldManager is the manager under which Secrets are written.
const FieldManager = "kms-health-operator"

// Request is the credential that there should be.
type Request struct {
	// Kind is any but CredentialsBoundToken, which the kubelet issues.
	Kind      v1alpha1.Credentials
	Namespace string
	// Secret is the name of the Secret that holds the credential. Each kind needs a
	// Secret of its own, since the type of a Secret cannot change.
	Secret string
	// ServiceAccount, in the same namespace, is the account that tokens are for. It
	// must exist.
	ServiceAccount string
	// Labels of the Secret and of a CertificateSigningRequest. Changed ones are
	// written with the next credential.
	Labels map[string]string
	// Approve is whether the operator approves its own CertificateSigningRequest. If
	// not, it waits for an administrator.
	Approve bool
}

// Manager makes credentials. Ensure and Forget may be called from several
// goroutines, but not for one Secret at a time.
type Manager struct {
	client kubernetes.Interface
	clock  clock.PassiveClock

	mu     sync.Mutex
	states map[types.NamespacedName]*state
}

// state is kept for a Secret from one call to the next. If it is lost, at most another
// CertificateSigningRequest is made.
type state struct {
	last         validity  // as read last
	waitingSince time.Time // for another controller; zero: nothing is waited for
	pending      *pending  // nil: no request of this process
	tidied       bool      // no CertificateSigningRequest is left
}

// New makes a Manager. Tests pass in their own clock.
func New(client kubernetes.Interface, clock clock.PassiveClock) *Manager {
	return &Manager{client: client, clock: clock, states: map[types.NamespacedName]*state{}}
}

func (m *Manager) state(key types.NamespacedName) *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[key]
	if s == nil {
		s = &state{}
		m.states[key] = s
	}
	return s
}

// Ensure creates the credential, or renews it when that is due. It needs nothing but
// the ServiceAccount and the rights to its objects; whether the target's workloads are
// managed makes no difference to it.
func (m *Manager) Ensure(ctx context.Context, want Request) Result {
	s := m.state(want.key())
	v, err := m.step(ctx, want, s)
	return s.result(want, v, err, m.clock.Now())
}

// step reads the credential, and advances its renewal by one step if that is due. If it
// cannot be read, the last state is kept.
func (m *Manager) step(ctx context.Context, want Request, s *state) (validity, error) {
	secret, err := m.client.CoreV1().Secrets(want.Namespace).Get(ctx, want.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	if err != nil {
		return s.last, fmt.Errorf("read Secret %s: %w", want.key(), err)
	}
	if want.Kind == v1alpha1.CredentialsClientCertificate {
		s.last, err = m.clientCertificate(ctx, want, s, secret)
		return s.last, err
	}
	account, err := m.client.CoreV1().ServiceAccounts(want.Namespace).Get(ctx, want.ServiceAccount, metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // as right after an installation
		s.last = validity{}
		return s.last, progressing("ServiceAccount %s/%s does not exist", want.Namespace, want.ServiceAccount)
	}
	if err != nil {
		return s.last, fmt.Errorf("read ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	switch want.Kind {
	case v1alpha1.CredentialsMintedToken:
		s.last, err = m.mintedToken(ctx, want, secret, account.UID)
	case v1alpha1.CredentialsLegacyToken:
		s.last, err = m.legacyToken(ctx, want, secret, account.UID)
	default:
		err = fmt.Errorf("credentials of kind %q need no Secret", want.Kind)
	}
	return s.last, err
}

// Forget deletes a Secret and its pending request, and reports whether the Secret
// existed. An issued credential works until it expires; a legacy token ends with its
// Secret.
//
// certificate is whether the Secret is one of a ClientCertificate: only then is there
// a request to look for, and the right to.
func (m *Manager) Forget(ctx context.Context, namespace, secret string, certificate bool) (deleted bool, err error) {
	key := types.NamespacedName{Namespace: namespace, Name: secret}
	if certificate {
		s := m.state(key)
		s.discard()
		if err := m.tidy(ctx, key, s); err != nil {
			return false, err
		}
	}
	err = m.client.CoreV1().Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("delete Secret %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, key)
	return err == nil, nil
}

func progressing(format string, args ...any) error {
	return &Problem{Reason: ReasonProgressing, Message: fmt.Sprintf(format, args...), after: soon}
}

// apply writes the Secret. Fields that an earlier call gave and this one does not are
// removed.
func (m *Manager) apply(ctx context.Context, want Request, secret *applycorev1.SecretApplyConfiguration) error {
	_, err := m.client.CoreV1().Secrets(want.Namespace).Apply(ctx, secret.WithLabels(want.Labels),
		metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", want.key(), err)
	}
	return nil
}

func (r Request) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Secret}
}
