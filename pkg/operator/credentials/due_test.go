package credentials

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
)

var day0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func days(n float64) time.Duration { return time.Duration(n * float64(24*time.Hour)) }

func tokenSecret(change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			contract.IssuedAtAnnotation:          "2026-01-01T00:00:00Z",
			contract.ExpiresAtAnnotation:         "2026-01-31T00:00:00Z",
			contract.ServiceAccountUIDAnnotation: "account",
		}},
		Data: map[string][]byte{TokenKey: []byte("secret")},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

func TestTokenIsRenewedAtHalfItsLifeOrWhenItIsInvalid(t *testing.T) {
	annotate := func(name, value string) *corev1.Secret {
		return tokenSecret(func(s *corev1.Secret) { s.Annotations[name] = value })
	}
	for _, test := range []struct {
		name       string
		secret     *corev1.Secret
		at         time.Duration
		uid        types.UID
		due, works bool
	}{
		{"new", tokenSecret(nil), 0, "account", false, true},
		{"before half its life", tokenSecret(nil), days(15) - time.Second, "account", false, true},
		{"at half its life", tokenSecret(nil), days(15), "account", true, true},
		{"after its end", tokenSecret(nil), days(30), "account", true, false},
		{"a clock that went back", tokenSecret(nil), -days(400), "account", false, true},
		{
			"of ten minutes", annotate(contract.ExpiresAtAnnotation, "2026-01-01T00:10:00Z"), 5 * time.Minute, "account",
			true, true,
		},
		{"no Secret", &corev1.Secret{}, 0, "account", true, false},
		{"no token", tokenSecret(func(s *corev1.Secret) { s.Data = nil }), 0, "account", true, false},
		{"an empty token", tokenSecret(func(s *corev1.Secret) { s.Data[TokenKey] = nil }), 0, "account", true, false},
		{"another account of that name", tokenSecret(nil), 0, "another", true, false},
		{"no annotations", tokenSecret(func(s *corev1.Secret) { s.Annotations = nil }), 0, "account", true, false},
		{"no end", annotate(contract.ExpiresAtAnnotation, ""), 0, "account", true, false},
		{"no beginning", annotate(contract.IssuedAtAnnotation, "yesterday"), 0, "account", true, false},
		{
			"an end before the beginning", annotate(contract.ExpiresAtAnnotation, "2025-01-01T00:00:00Z"), 0, "account",
			true, false,
		},
	} {
		v, now := tokenValidity(test.secret, test.uid), day0.Add(test.at)
		if v.due(now) != test.due || v.works(now) != test.works {
			t.Errorf("%s: due %t, works %t, want %t, %t", test.name, v.due(now), v.works(now), test.due, test.works)
		}
	}
}
