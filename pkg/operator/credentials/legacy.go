package credentials

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// legacyToken makes the Secret that kube-controller-manager fills. Its token never
// ends; an API server that restarts while its KMS plugin is ill refuses it, since
// it cannot look the Secret up.
func (m *Manager) legacyToken(ctx context.Context, want Request, secret *corev1.Secret) (Result, error) {
	// A Secret of an account that is not there is deleted as soon as it is made.
	account, err := m.serviceAccount(ctx, want)
	if err != nil {
		return m.failed(secret != nil && len(secret.Data[TokenKey]) > 0, err)
	}
	if account == "" {
		return m.accountMissing(want), nil
	}
	if secret == nil || secret.Annotations[corev1.ServiceAccountNameKey] != want.ServiceAccount {
		made := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeServiceAccountToken).
			WithAnnotations(map[string]string{corev1.ServiceAccountNameKey: want.ServiceAccount})
		if err := m.apply(ctx, want, made); err != nil {
			return m.failed(false, err)
		}
		return m.awaitingToken(want), nil
	}
	// The controller deletes a Secret of an earlier account of the same name.
	if len(secret.Data[TokenKey]) == 0 || secret.Annotations[corev1.ServiceAccountUIDKey] != string(account) {
		return m.awaitingToken(want), nil
	}
	return m.asExpected(m.clock.Now().Add(lookAgain)), nil
}

func (m *Manager) awaitingToken(want Request) Result {
	return m.waits(false, ReasonAwaitingToken, "kube-controller-manager has put no token into Secret "+want.key().String()+" yet", soon)
}
