package reportercontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// tokenLifetime is requested, in seconds. The server may grant a shorter one
// (--service-account-max-token-expiration), which counts.
const tokenLifetime = int64(30 * 24 * time.Hour / time.Second)

// validity is when a token expires, and when it is to be renewed: after half of its life, to leave time for an API
// server that cannot read the Secret while a KMS plugin is unhealthy. The zero value means that there is no token
// that works, or that it cannot be read.
type validity struct{ notAfter, renewAt time.Time }

// ensureToken keeps a token of a target's ServiceAccount in a Secret of its namespace, for sidecars.
// A write that fails leaves the previous token in place, and no token is in a log, an error or a
// message. A token is not revoked: it works until it expires, or its ServiceAccount is deleted, which owns the Secret.
func (c *Controller) ensureToken(ctx context.Context, namespace, target string) (validity, error) {
	name, secretName := contract.ReporterName(target), objects.TokenName(target)
	secret, err := c.Core.Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return validity{}, fmt.Errorf("read Secret %s/%s: %w", namespace, secretName, err)
	}
	account, err := c.Core.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return validity{}, fmt.Errorf("read ServiceAccount %s/%s: %w", namespace, name, err)
	}
	current, now := tokenValidity(secret, account.UID), c.Now()
	if now.Before(current.renewAt) {
		return current, nil
	}
	token, err := c.Core.ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(tokenLifetime)},
	}, metav1.CreateOptions{})
	expires := now
	if err == nil {
		// What the server granted, whatever this process's clock is.
		expires = now.Add(time.Duration(ptr.Deref(token.Spec.ExpirationSeconds, tokenLifetime)) * time.Second)
		desired := applycorev1.Secret(secretName, namespace).WithType(corev1.SecretTypeOpaque).
			WithLabels(map[string]string{contract.ManagedByLabel: contract.OperatorName,
				contract.APIServerLabel: target, "app.kubernetes.io/name": "kms-health-reporter"}).
			WithData(map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token.Status.Token)}).
			WithAnnotations(map[string]string{
				contract.IssuedAtAnnotation:  now.UTC().Format(time.RFC3339),
				contract.ExpiresAtAnnotation: expires.UTC().Format(time.RFC3339),
			}).
			WithOwnerReferences(applymetav1.OwnerReference().WithAPIVersion("v1").WithKind("ServiceAccount").
				WithName(name).WithUID(account.UID))
		_, err = c.Core.Secrets(namespace).Apply(ctx, desired,
			metav1.ApplyOptions{FieldManager: contract.OperatorName, Force: true})
	}
	switch {
	case err == nil:
		return halved(now, expires), nil
	case current == validity{}:
		return current, fmt.Errorf("create a token in Secret %s/%s: %w", namespace, secretName, err)
	}
	return current, fmt.Errorf("renew the token in Secret %s/%s, which expires at %s: %w", namespace, secretName,
		current.notAfter.UTC().Format(time.RFC3339), err)
}

// halved returns the validity of a token that is renewed after half its life.
func halved(notBefore, notAfter time.Time) validity {
	return validity{notAfter, notBefore.Add(notAfter.Sub(notBefore) / 2)}
}

// tokenValidity returns the validity of the token in a Secret. A token of an earlier ServiceAccount of the same name
// does not work, and one without its dates is replaced.
func tokenValidity(secret *corev1.Secret, account types.UID) validity {
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 ||
		!slices.ContainsFunc(secret.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == account }) {
		return validity{}
	}
	issued, err1 := time.Parse(time.RFC3339, secret.Annotations[contract.IssuedAtAnnotation])
	expires, err2 := time.Parse(time.RFC3339, secret.Annotations[contract.ExpiresAtAnnotation])
	if err1 != nil || err2 != nil || !expires.After(issued) {
		return validity{}
	}
	return halved(issued, expires)
}
