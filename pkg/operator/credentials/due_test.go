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
	certificatesv1 "k8s.io/api/certificates/v1"
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

func TestTokenIsRenewedAtHalfItsLifeOrWhenItIsOfNoUse(t *testing.T) {
	annotate := func(name, value string) *corev1.Secret {
		return tokenSecret(func(s *corev1.Secret) { s.Annotations[name] = value })
	}
	for _, test := range []struct {
		name   string
		secret *corev1.Secret
		at     time.Duration
		uid    types.UID
		reason string // empty: not due
		works  bool   // meanwhile
	}{
		{"new", tokenSecret(nil), 0, "account", "", true},
		{"before half its life", tokenSecret(nil), days(15) - time.Second, "account", "", true},
		{"at half its life", tokenSecret(nil), days(15), "account", "half its life", true},
		{"after its end", tokenSecret(nil), days(30), "account", "half its life", false},
		{"a clock that went back", tokenSecret(nil), -days(400), "account", "", true},
		{"of ten minutes", annotate(ExpiresAtAnnotation, "2026-01-01T00:10:00Z"), 5 * time.Minute, "account", "half its life", true},
		{"no Secret", nil, 0, "account", "no Secret", false},
		{"no token", tokenSecret(func(s *corev1.Secret) { s.Data = nil }), 0, "account", "no token", false},
		{"an empty token", tokenSecret(func(s *corev1.Secret) { s.Data[TokenKey] = nil }), 0, "account", "no token", false},
		{"another account of that name", tokenSecret(nil), 0, "another", "another ServiceAccount", false},
		{"no annotations", tokenSecret(func(s *corev1.Secret) { s.Annotations = nil }), 0, "account", "another ServiceAccount", false},
		{"no end", annotate(ExpiresAtAnnotation, ""), 0, "account", "does not say", false},
		{"no beginning", annotate(IssuedAtAnnotation, "yesterday"), 0, "account", "does not say", false},
		{"an end before the beginning", annotate(ExpiresAtAnnotation, "2025-01-01T00:00:00Z"), 0, "account", "does not say", false},
	} {
		due, reason := Due(test.secret, day0.Add(test.at), test.uid)
		if due != (test.reason != "") || !strings.Contains(reason, test.reason) {
			t.Errorf("%s: due %t, %q; want %q", test.name, due, reason, test.reason)
		}
		if got := works(test.secret, day0.Add(test.at), test.uid); got != test.works {
			t.Errorf("%s: works %t, want %t", test.name, got, test.works)
		}
	}
}

func TestServerDecidesHowLongATokenLives(t *testing.T) {
	answer := &authenticationv1.TokenRequest{
		Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))},
		Status: authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(day0.Add(time.Hour))},
	}
	if got := granted(answer, day0.Add(days(100))); got != 10*time.Minute {
		t.Errorf("%v, whatever our clock says", got)
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

func TestCertificateIsRenewedAtHalfItsLifeOrWhenItIsOfNoUse(t *testing.T) {
	certificate, key := signed(t, User)
	_, anotherKey := signed(t, User)
	another, keyOfAnother := signed(t, "system:admin")
	with := func(certificate, key []byte) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}}
	}
	for _, test := range []struct {
		name   string
		secret *corev1.Secret
		at     time.Duration
		reason string // empty: not due
	}{
		{"new", with(certificate, key), 0, ""},
		{"before half its life", with(certificate, key), days(180) - time.Second, ""},
		{"at half its life", with(certificate, key), days(180), "half its life"},
		{"after its end", with(certificate, key), days(361), "half its life"},
		{"no Secret", nil, 0, "no Secret"},
		{"an empty Secret", &corev1.Secret{}, 0, "lacks"},
		{"no key", with(certificate, nil), 0, "lacks"},
		{"no certificate", with(nil, key), 0, "lacks"},
		{"garbage", with([]byte("garbage"), key), 0, "cannot be parsed"},
		{"a certificate cut short", with(certificate[:100], key), 0, "cannot be parsed"},
		{"another's key", with(certificate, anotherKey), 0, "cannot be parsed, or do not belong together"},
		{"another user's", with(another, keyOfAnother), 0, "another user"},
	} {
		due, reason := CertificateDue(test.secret, day0.Add(test.at))
		if due != (test.reason != "") || !strings.Contains(reason, test.reason) {
			t.Errorf("%s: due %t, %q; want %q", test.name, due, reason, test.reason)
		}
		if strings.Contains(reason, "PRIVATE") || strings.Contains(reason, "garbage") {
			t.Errorf("%s: tells what is in the Secret: %s", test.name, reason)
		}
	}
	if next := CertificateNext(with(certificate, key)); !next.Equal(day0.Add(days(180))) {
		t.Errorf("to be renewed at %v", next)
	}
	if next := CertificateNext(with(nil, key)); !next.IsZero() {
		t.Errorf("what cannot be used is to be renewed at %v", next)
	}
}

func TestRefusedRequestsSayWhyAndWhen(t *testing.T) {
	for _, test := range []struct {
		kind   certificatesv1.RequestConditionType
		reason string
		why    string
	}{
		{certificatesv1.CertificateApproved, "", ""},
		{certificatesv1.CertificateDenied, ReasonRequestDenied, "denied (Policy: no)"},
		{certificatesv1.CertificateFailed, ReasonRequestFailed, "failed (Policy: no)"},
	} {
		live := &certificatesv1.CertificateSigningRequest{}
		live.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: test.kind, Reason: "Policy", Message: "no", LastUpdateTime: metav1.NewTime(day0)}}
		reason, why, at := refusal(live)
		if reason != test.reason || why != test.why || reason != "" && !at.Equal(day0) {
			t.Errorf("%s: %q, %q, %v", test.kind, reason, why, at)
		}
	}
}
