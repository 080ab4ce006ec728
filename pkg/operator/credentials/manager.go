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
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// FieldManager is the manager under which Secrets are written.
const FieldManager = "kms-health-operator"

const (
	// soon is when to look again for what another controller does in a moment.
	soon = 5 * time.Second
	// lookAgain bounds the time until the next look: nobody tells of a Secret
	// that was deleted or emptied.
	lookAgain = 10 * time.Minute
)

// Request says what credential there should be.
type Request struct {
	// Kind is any but CredentialsBoundToken, which is the kubelet's business.
	Kind      v1alpha1.Credentials
	Namespace string
	// Secret is the name of the Secret that holds the credential: one of its own
	// for each kind, since the type of a Secret cannot change.
	Secret string
	// ServiceAccount, in the same namespace, is whose token it is. It must exist.
	ServiceAccount string
	// Labels of the Secret, and of a CertificateSigningRequest. Changed ones are
	// written with the next credential.
	Labels map[string]string
	// Approve says that the operator approves its own CertificateSigningRequest.
	// Else it waits for an administrator.
	Approve bool
}

// Result says how a credential is.
type Result struct {
	// Ready says that the Secret holds a credential that works: when it was
	// last looked at, as far as can be told, and perhaps an old one.
	Ready bool
	// Reason is one word, and Message a sentence for people.
	Reason  string
	Message string
	// Next is when to look again at the latest.
	Next time.Time
}

// Reasons of a Result.
const (
	ReasonAsExpected            = "AsExpected"
	ReasonServiceAccountMissing = "ServiceAccountMissing"
	// ReasonRenewalFailed: an error came with it, and the credential of before,
	// where there is one, stays.
	ReasonRenewalFailed = "RenewalFailed"
	// ReasonAwaitingApproval: an administrator must act; the message says how.
	ReasonAwaitingApproval = "AwaitingApproval"
	ReasonAwaitingSigner   = "AwaitingSigner"
	ReasonRequestDenied    = "RequestDenied"
	ReasonRequestFailed    = "RequestFailed"
	// ReasonAwaitingToken: kube-controller-manager fills a legacy token's Secret.
	ReasonAwaitingToken = "AwaitingToken"
)

// Manager makes credentials. Ensure and Forget may be called from several
// goroutines, but not for one Secret at a time.
type Manager struct {
	client kubernetes.Interface
	clock  clock.PassiveClock

	mu      sync.Mutex
	pending map[types.NamespacedName]*pending
	tidied  map[types.NamespacedName]bool
}

// New makes a Manager. The clock is the caller's, so that years pass in tests.
func New(client kubernetes.Interface, clock clock.PassiveClock) *Manager {
	return &Manager{
		client: client, clock: clock,
		pending: map[types.NamespacedName]*pending{},
		tidied:  map[types.NamespacedName]bool{},
	}
}

// Ensure makes the credential be there, and renews it when it is due. The Result
// counts with an error, too: of a failed renewal it says whether an earlier
// credential is still there.
func (m *Manager) Ensure(ctx context.Context, want Request) (Result, error) {
	ensure, known := map[v1alpha1.Credentials]func(context.Context, Request, *corev1.Secret) (Result, error){
		v1alpha1.CredentialsMintedToken:       m.mintedToken,
		v1alpha1.CredentialsClientCertificate: m.clientCertificate,
		v1alpha1.CredentialsLegacyToken:       m.legacyToken,
	}[want.Kind]
	if !known {
		return Result{}, fmt.Errorf("credentials of kind %q are not made here", want.Kind)
	}
	secret, err := m.client.CoreV1().Secrets(want.Namespace).Get(ctx, want.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	if err != nil {
		return m.failed(false, fmt.Errorf("read Secret %s: %w", want.key(), err))
	}
	return ensure(ctx, want, secret)
}

// Forget deletes a Secret and what is under way for it. It is no error when
// neither is there. What the Secret held works until it ends; a legacy token ends
// with its Secret.
// certificate says that it is a ClientCertificate's: only then is there a request
// to look for, and the right to.
func (m *Manager) Forget(ctx context.Context, namespace, secret string, certificate bool) error {
	key := types.NamespacedName{Namespace: namespace, Name: secret}
	m.forget(key)
	if certificate {
		if err := m.tidy(ctx, key); err != nil {
			return err
		}
	}
	err := m.client.CoreV1().Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", key, err)
	}
	return nil
}

// failed is the Result of an error. The caller retries by its own backoff.
func (m *Manager) failed(ready bool, err error) (Result, error) {
	return Result{Ready: ready, Reason: ReasonRenewalFailed, Message: err.Error(), Next: m.clock.Now().Add(soon)}, err
}

// asExpected is the Result of a credential that is in force until it is due.
func (m *Manager) asExpected(due time.Time) Result {
	next := m.clock.Now().Add(lookAgain)
	if due.Before(next) {
		next = due
	}
	return Result{Ready: true, Reason: ReasonAsExpected, Next: next}
}

func (m *Manager) waits(ready bool, reason, message string, after time.Duration) Result {
	return Result{Ready: ready, Reason: reason, Message: message, Next: m.clock.Now().Add(after)}
}

// serviceAccount returns the UID of the request's account, empty where there is
// none.
func (m *Manager) serviceAccount(ctx context.Context, want Request) (types.UID, error) {
	account, err := m.client.CoreV1().ServiceAccounts(want.Namespace).Get(ctx, want.ServiceAccount, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read ServiceAccount %s/%s: %w", want.Namespace, want.ServiceAccount, err)
	}
	return account.UID, nil
}

func (m *Manager) accountMissing(want Request) Result {
	return m.waits(false, ReasonServiceAccountMissing, fmt.Sprintf("ServiceAccount %s/%s is not there", want.Namespace, want.ServiceAccount), soon)
}

// apply writes the Secret: what is not given here and was given before goes.
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
