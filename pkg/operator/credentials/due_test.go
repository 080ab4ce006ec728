package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var day0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func days(n float64) time.Duration { return time.Duration(n * float64(24*time.Hour)) }

func tokenSecret(change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			IssuedAtAnnotation:          "2026-01-01T00:00:00Z",
			ExpiresAtAnnotation:         "2026-01-31T00:00:00Z",
			ServiceAccountUIDAnnotation: "account",
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
		{"of ten minutes", annotate(ExpiresAtAnnotation, "2026-01-01T00:10:00Z"), 5 * time.Minute, "account", true, true},
		{"no Secret", nil, 0, "account", true, false},
		{"no token", tokenSecret(func(s *corev1.Secret) { s.Data = nil }), 0, "account", true, false},
		{"an empty token", tokenSecret(func(s *corev1.Secret) { s.Data[TokenKey] = nil }), 0, "account", true, false},
		{"another account of that name", tokenSecret(nil), 0, "another", true, false},
		{"no annotations", tokenSecret(func(s *corev1.Secret) { s.Annotations = nil }), 0, "account", true, false},
		{"no end", annotate(ExpiresAtAnnotation, ""), 0, "account", true, false},
		{"no beginning", annotate(IssuedAtAnnotation, "yesterday"), 0, "account", true, false},
		{"an end before the beginning", annotate(ExpiresAtAnnotation, "2025-01-01T00:00:00Z"), 0, "account", true, false},
	} {
		v, now := tokenValidity(test.secret, test.uid), day0.Add(test.at)
		if v.due(now) != test.due || v.works(now) != test.works {
			t.Errorf("%s: due %t, works %t, want %t, %t", test.name, v.due(now), v.works(now), test.due, test.works)
		}
	}
}

func tlsSecret(certificate, key []byte) *corev1.Secret {
	return &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}}
}

func TestServerDecidesTheLifetimeOfAToken(t *testing.T) {
	answer := &authenticationv1.TokenRequest{
		Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))},
		Status: authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(day0.Add(time.Hour))},
	}
	if got := granted(answer, day0.Add(days(100))); got != 10*time.Minute {
		t.Errorf("%v, whatever this process's clock is", got)
	}
	answer.Spec.ExpirationSeconds = nil
	if got := granted(answer, day0); got != time.Hour {
		t.Errorf("%v, want what is left until its end", got)
	}
}

// signed is a self-signed certificate for a year, and its key.
func signed(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: day0, NotAfter: day0.Add(days(360)),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	key, err = (&pending{key: private}).pem()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

func TestCertificateIsRenewedAtHalfItsLifeOrWhenItIsInvalid(t *testing.T) {
	certificate, key := signed(t, User)
	_, anotherKey := signed(t, User)
	another, keyOfAnother := signed(t, "system:admin")
	for _, test := range []struct {
		name   string
		secret *corev1.Secret
		at     time.Duration
		due    bool
		reason string // why it cannot be used; empty: it can
	}{
		{"new", tlsSecret(certificate, key), 0, false, ""},
		{"before half its life", tlsSecret(certificate, key), days(180) - time.Second, false, ""},
		{"at half its life", tlsSecret(certificate, key), days(180), true, ""},
		{"after its end", tlsSecret(certificate, key), days(361), true, ""},
		{"no Secret", nil, 0, true, "no Secret"},
		{"an empty Secret", &corev1.Secret{}, 0, true, "lacks"},
		{"no key", tlsSecret(certificate, nil), 0, true, "lacks"},
		{"no certificate", tlsSecret(nil, key), 0, true, "lacks"},
		{"garbage", tlsSecret([]byte("garbage"), key), 0, true, "cannot be parsed"},
		{"a certificate cut short", tlsSecret(certificate[:100], key), 0, true, "cannot be parsed"},
		{"another's key", tlsSecret(certificate, anotherKey), 0, true, "cannot be parsed, or do not belong together"},
		{"another user's", tlsSecret(another, keyOfAnother), 0, true, "another user"},
	} {
		v, err := certificateValidity(test.secret)
		if got := v.due(day0.Add(test.at)); got != test.due {
			t.Errorf("%s: due %t", test.name, got)
		}
		switch {
		case test.reason == "":
			if err != nil || !v.notAfter.Equal(day0.Add(days(360))) || !v.renewAt.Equal(day0.Add(days(180))) {
				t.Errorf("%s: %+v, %v", test.name, v, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.reason) || v.works(day0):
			t.Errorf("%s: %+v, %v; want %q", test.name, v, err, test.reason)
		case strings.Contains(err.Error(), "PRIVATE") || strings.Contains(err.Error(), "garbage"):
			t.Errorf("%s: the error contains what is in the Secret: %v", test.name, err)
		}
	}
}
