//go:build integration

package identity

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/controlplane"
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

// overwrite changes the Secret, like another client.
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
	o.must("", true)
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
	o.mustBeUnchanged()
	o.restart()
	o.after(credentials.TokenLifetime/2 - 2*time.Second) // annotations are cut to seconds
	o.mustBeUnchanged()
	o.after(2 * time.Second)
	before := len(o.writes())
	o.must("", true)
	if second := o.token(); second == first {
		t.Error("the token is the same")
	} else {
		o.mustBe(user, second)
	}
	o.mustBe(user, first) // whoever has not reread it yet goes on
	if n := len(o.writes()) - before; n != 2 {
		t.Errorf("%d writes, want a token and a Secret", n)
	}
	o.mustBeUnchanged()
	o.mustForget()
}

func TestMintedTokenIsReplacedWhenItIsOfNoUse(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsMintedToken)
	user := controlplane.ServiceAccountUser(home, o.want.ServiceAccount)
	o.must("", true)
	for name, spoil := range map[string]func(){
		"the Secret is deleted":    o.deleteSecret,
		"the token is deleted":     func() { o.overwrite(func(s *corev1.Secret) { s.Data = nil }) },
		"an annotation is deleted": func() { o.overwrite(func(s *corev1.Secret) { delete(s.Annotations, credentials.ExpiresAtAnnotation) }) },
		"the account is recreated": o.recreateAccount,
	} {
		spoil()
		o.must("", true)
		// A cache may still hold the account of before for a moment.
		eventually(t, "after "+name+" the token works", func() error { _, err := o.whoami(o.token()); return err })
		o.mustBe(user, o.token())
		o.mustBeUnchanged()
	}
}

func TestMintedTokenOfBeforeStaysWhenItsRenewalFails(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsMintedToken)
	o.must("", true)
	first := o.token()
	o.revoke("write")
	for _, step := range []struct {
		after  time.Duration
		reason credentials.Reason
		ready  bool
	}{
		{credentials.TokenLifetime / 2, credentials.ReasonRenewalFailed, true},
		{credentials.TokenLifetime / 2, credentials.ReasonCredentialsExpired, false},
	} {
		o.after(step.after)
		o.must(step.reason, step.ready)
		if o.token() != first {
			t.Error("the token changed")
		}
	}
	o.grant("write")
	o.must("", true)
	o.mustBeUnchanged()
}

func TestLegacyTokenIsFilledByTheControllerManager(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsLegacyToken)
	user := controlplane.ServiceAccountUser(home, o.want.ServiceAccount)
	o.must(credentials.ReasonProgressing, false)
	o.settle()
	o.mustBe(user, o.token())
	o.mustBeUnchanged()
	o.after(10 * 365 * 24 * time.Hour)
	o.mustBeUnchanged()
	o.deleteSecret()
	o.must(credentials.ReasonProgressing, false)
	o.settle()
	o.mustBe(user, o.token())
	o.recreateAccount()
	o.settle()
	o.mustBe(user, o.token())
}

func TestBoundTokenIsNotMadeHere(t *testing.T) {
	o := newOperator(t, cluster, v1alpha1.CredentialsBoundToken)
	o.must(credentials.ReasonRenewalFailed, false)
	if got := o.writes(); len(got) > 0 {
		t.Errorf("writes: %v", got)
	}
}
