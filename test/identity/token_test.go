//go:build integration

package identity

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/controlplane"
)

func (o *operator) token() controlplane.Credential {
	o.t.Helper()
	return controlplane.Credential{Token: o.data(credentials.TokenKey)}
}

func (o *operator) deleteSecret() {
	o.t.Helper()
	if err := o.admin.CoreV1().Secrets(home).Delete(soon(o.t), o.want.Secret, metav1.DeleteOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// overwrite changes the Secret, as somebody else might.
func (o *operator) overwrite(change func(*corev1.Secret)) {
	o.t.Helper()
	secret := o.secret()
	change(secret)
	if _, err := o.admin.CoreV1().Secrets(home).Update(soon(o.t), secret, metav1.UpdateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func TestMintedTokenIsRenewedAtHalfItsLife(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsMintedToken)
	user := controlplane.ServiceAccountUser(home, o.want.ServiceAccount)
	o.must(credentials.ReasonAsExpected, true)
	first := o.token()
	o.mustBe(user, first)
	secret := o.secret()
	issued, expires := secret.Annotations[credentials.IssuedAtAnnotation], secret.Annotations[credentials.ExpiresAtAnnotation]
	if want := o.clock.Now().Add(credentials.TokenLifetime).UTC().Format(time.RFC3339); expires != want || issued == "" {
		t.Errorf("issued %s, expires %s, want %s", issued, expires, want)
	}
	if secret.Labels["app.kubernetes.io/managed-by"] != "kms-health-operator" {
		t.Errorf("labels %v", secret.Labels)
	}
	o.quiet()
	o.restart()
	o.after(credentials.TokenLifetime/2 - 2*time.Second) // annotations are cut to seconds
	o.quiet()
	o.after(2 * time.Second)
	before := len(o.writes())
	o.must(credentials.ReasonAsExpected, true)
	if second := o.token(); second == first {
		t.Error("the token is the same")
	} else {
		o.mustBe(user, second)
	}
	o.mustBe(user, first) // whoever has not reread it yet goes on
	if n := len(o.writes()) - before; n != 2 {
		t.Errorf("%d writes, want a token and a Secret", n)
	}
	o.quiet()
	o.forgotten()
}

func TestMintedTokenIsReplacedWhenItIsOfNoUse(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsMintedToken)
	user := controlplane.ServiceAccountUser(home, o.want.ServiceAccount)
	o.must(credentials.ReasonAsExpected, true)
	for name, spoil := range map[string]func(){
		"the Secret is deleted":    o.deleteSecret,
		"the token is deleted":     func() { o.overwrite(func(s *corev1.Secret) { s.Data = nil }) },
		"an annotation is deleted": func() { o.overwrite(func(s *corev1.Secret) { delete(s.Annotations, credentials.ExpiresAtAnnotation) }) },
		"the account is made anew": o.accountAnew,
	} {
		spoil()
		o.must(credentials.ReasonAsExpected, true)
		// A cache may still know the account of before for a moment.
		eventually(t, "after "+name+" the token works", func() error { _, err := o.whoami(o.token()); return err })
		o.mustBe(user, o.token())
		o.quiet()
	}
}

func TestMintedTokenOfBeforeStaysWhenItsRenewalFails(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsMintedToken)
	o.must(credentials.ReasonAsExpected, true)
	first := o.token()
	o.revoke("write")
	for _, step := range []struct {
		after time.Duration
		ready bool
	}{{credentials.TokenLifetime / 2, true}, {credentials.TokenLifetime / 2, false}} {
		o.after(step.after)
		result, err := o.try()
		if err == nil || result.Ready != step.ready || result.Reason != credentials.ReasonRenewalFailed {
			t.Errorf("%+v, %v; want ready %t", result, err, step.ready)
		}
		if o.token() != first {
			t.Error("the token changed")
		}
	}
	o.grant("write")
	o.must(credentials.ReasonAsExpected, true)
	o.quiet()
}

func TestLegacyTokenIsFilledByTheControllerManager(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsLegacyToken)
	user := controlplane.ServiceAccountUser(home, o.want.ServiceAccount)
	o.must(credentials.ReasonAwaitingToken, false)
	o.settle()
	o.mustBe(user, o.token())
	o.quiet()
	o.after(10 * 365 * 24 * time.Hour)
	o.quiet()
	o.deleteSecret()
	o.must(credentials.ReasonAwaitingToken, false)
	o.settle()
	o.mustBe(user, o.token())
	o.accountAnew()
	o.settle()
	o.mustBe(user, o.token())
}

func TestBoundTokenIsNotMadeHere(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsBoundToken)
	if result, err := o.manager.Ensure(soon(t), o.want); err == nil {
		t.Errorf("%+v", result)
	}
}
