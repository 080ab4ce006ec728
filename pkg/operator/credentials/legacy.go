package credentials

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// legacyToken makes the Secret that kube-controller-manager fills. Its token never
// expires; an API server that restarts while its KMS plugin is unhealthy rejects it,
// since it cannot look the Secret up.
func (m *Manager) legacyToken(ctx context.Context, want Request, secret *corev1.Secret, account types.UID) (validity, error) {
	if secret == nil || secret.Annotations[corev1.ServiceAccountNameKey] != want.ServiceAccount {
		desired := applycorev1.Secret(want.Secret, want.Namespace).WithType(corev1.SecretTypeServiceAccountToken).
			WithAnnotations(map[string]string{corev1.ServiceAccountNameKey: want.ServiceAccount})
		if err := m.apply(ctx, want, desired); err != nil {
			return validity{}, err
		}
		secret = &corev1.Secret{}
	}
	// A Secret of an earlier account of the same name is deleted by the controller.
	if len(secret.Data[TokenKey]) == 0 || secret.Annotations[corev1.ServiceAccountUIDKey] != string(account) {
		return validity{}, progressing("kube-controller-manager has not put a token into Secret %s yet", want.key())
	}
	return validity{usable: true}, nil
}
