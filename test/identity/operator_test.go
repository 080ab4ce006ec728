//go:build integration

package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// operator is a Manager with an identity of its own, the rights that it needs and
// no more, and a clock that the test moves.
type operator struct {
	t       *testing.T
	cluster *controlplane.ControlPlane
	admin   *kubernetes.Clientset
	client  *kubernetes.Clientset
	user    string
	clock   *clocktesting.FakePassiveClock
	want    credentials.Request
	manager *credentials.Manager
}

func newOperator(t *testing.T, c *controlplane.ControlPlane, kind v1alpha1.Credentials) *operator {
	t.Helper()
	name := strings.ToLower(string(kind)) + "-" + fmt.Sprint(time.Now().UnixNano())
	o := &operator{
		t: t, cluster: c, admin: clientset(t, c), user: controlplane.ServiceAccountUser(home, "operator-"+name),
		clock: clocktesting.NewFakePassiveClock(time.Now()),
		want: credentials.Request{
			Kind: kind, Namespace: home, Secret: "kms-health-reporter-" + name, ServiceAccount: "kms-health-reporter-" + name,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "kms-health-operator"},
		},
	}
	_, err := o.admin.CoreV1().Namespaces().Create(soon(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	need(t, err)
	o.account("operator-" + name)
	o.account(o.want.ServiceAccount)
	o.grant("read",
		rule("", "secrets", o.want.Secret, "get", "delete"),
		rule("", "serviceaccounts", o.want.ServiceAccount, "get"),
		rule("", "serviceaccounts/token", o.want.ServiceAccount, "create"),
		// The only right here that no name can bound.
		rule("certificates.k8s.io", "certificatesigningrequests", "", "create"),
		rule("certificates.k8s.io", "certificatesigningrequests", o.csr(), "get", "delete"),
		rule("certificates.k8s.io", "certificatesigningrequests/approval", o.csr(), "update"),
		rule("certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client", "approve"),
	)
	// A Server-Side Apply names what it creates, so a name bounds that, too.
	o.grant("write", rule("", "secrets", o.want.Secret, "create", "patch"))
	config := c.RESTConfigAs(token(t, c, "operator-"+name, nil))
	if o.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	o.restart()
	t.Cleanup(o.readsNothingElse)
	return o
}

func rule(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	if name != "" {
		r.ResourceNames = []string{name}
	}
	return r
}

func (o *operator) account(name string) {
	o.t.Helper()
	_, err := o.admin.CoreV1().ServiceAccounts(home).Create(soon(o.t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	need(o.t, err)
}

// recreateAccount deletes the account, without which nothing may be written, and makes
// another.
func (o *operator) recreateAccount() {
	o.t.Helper()
	need(o.t, o.admin.CoreV1().ServiceAccounts(home).Delete(soon(o.t), o.want.ServiceAccount, metav1.DeleteOptions{}))
	before := len(o.writes())
	o.must(credentials.ReasonProgressing, false)
	if got := o.writes()[before:]; len(got) > 0 {
		o.t.Errorf("writes without an account: %v", got)
	}
	o.account(o.want.ServiceAccount)
}

func (o *operator) csr() string { return credentials.CSRName(o.want.Namespace, o.want.Secret) }

// grant gives the operator rights in all namespaces, and waits
// until they are in force; revoke takes them away.
func (o *operator) grant(what string, rules ...rbacv1.PolicyRule) {
	o.t.Helper()
	name := what + "-" + o.want.Secret
	_, err := o.admin.RbacV1().ClusterRoles().Create(soon(o.t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	need(o.t, err)
	_, err = o.admin.RbacV1().ClusterRoleBindings().Create(soon(o.t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.user}},
	}, metav1.CreateOptions{})
	need(o.t, err)
	o.awaitAccess(what, true)
}

func (o *operator) revoke(what string) {
	o.t.Helper()
	if err := o.admin.RbacV1().ClusterRoleBindings().Delete(soon(o.t), what+"-"+o.want.Secret, metav1.DeleteOptions{}); err != nil {
		o.t.Fatal(err)
	}
	o.awaitAccess(what, false)
}

func (o *operator) awaitAccess(what string, allowed bool) {
	o.t.Helper()
	verb := map[string]string{"read": "get", "write": "patch"}[what]
	eventually(o.t, fmt.Sprintf("the operator may %s: %t", what, allowed), func() error {
		review, err := o.admin.AuthorizationV1().SubjectAccessReviews().Create(soon(o.t), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: o.user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Version: "v1", Resource: "secrets", Namespace: home, Name: o.want.Secret, Verb: verb,
			}},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != allowed {
			err = fmt.Errorf("allowed: %t", review.Status.Allowed)
		}
		return err
	})
}

// restart makes another Manager, without the state of the one before.
func (o *operator) restart() { o.manager = credentials.New(o.client, o.clock) }

// after moves the clock.
func (o *operator) after(d time.Duration) { o.clock.SetTime(o.clock.Now().Add(d)) }

// try calls Ensure once, and returns the reason of its problem, if any. Its result
// contains nothing of the Secret.
func (o *operator) try() (credentials.Result, credentials.Reason) {
	o.t.Helper()
	result := o.manager.Ensure(soon(o.t), o.want)
	if result.Next.Before(o.clock.Now()) || result.Next.After(o.clock.Now().Add(time.Hour)) {
		o.t.Errorf("next check at %v, but it is %v", result.Next, o.clock.Now())
	}
	text, reason := fmt.Sprintf("%+v", result), credentials.Reason("")
	if result.Problem != nil {
		text, reason = fmt.Sprintf("%s %+v", text, *result.Problem), result.Problem.Reason
	}
	if secret := o.secret(); secret != nil {
		for key, value := range secret.Data {
			if len(value) > 20 && key != "ca.crt" && strings.Contains(text, string(value[:20])) {
				o.t.Errorf("the result contains %s: %s", key, text)
			}
		}
	}
	return result, reason
}

// must calls Ensure once, and wants this reason; none: no problem.
func (o *operator) must(want credentials.Reason, ready bool) credentials.Result {
	o.t.Helper()
	result, reason := o.try()
	if reason != want || result.Ready != ready {
		o.t.Fatalf("%+v, %v; want %s, ready %t", result, result.Problem, want, ready)
	}
	return result
}

// settle calls Ensure until the credential is fresh.
func (o *operator) settle() {
	o.t.Helper()
	eventually(o.t, "the credential is as expected", func() error {
		if result, _ := o.try(); !result.Ready || result.Problem != nil || result.RenewAt.Before(o.clock.Now()) && o.want.Kind != v1alpha1.CredentialsLegacyToken {
			return fmt.Errorf("%+v, %w", result, result.Problem)
		}
		return nil
	})
}

// mustBeUnchanged requires that Ensure succeeds, and writes nothing.
func (o *operator) mustBeUnchanged() {
	o.t.Helper()
	before := o.writes()
	for range 3 {
		o.must("", true)
	}
	if after := o.writes(); len(after) != len(before) {
		o.t.Errorf("writes though nothing is due: %v", after[len(before):])
	}
}

// secret is nil where there is none.
func (o *operator) secret() *corev1.Secret {
	o.t.Helper()
	secret, err := o.admin.CoreV1().Secrets(home).Get(soon(o.t), o.want.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return secret
}

func (o *operator) data(key string) string {
	o.t.Helper()
	secret := o.secret()
	if secret == nil || len(secret.Data[key]) == 0 {
		o.t.Fatalf("the Secret has no %s", key)
	}
	return string(secret.Data[key])
}

// writes are all the operator's requests that were to change something, by the
// API server's log.
func (o *operator) writes() []string {
	o.t.Helper()
	var all []string
	for _, e := range o.events() {
		if e.Verb != "get" {
			all = append(all, fmt.Sprintf("%s %s %d", e.Verb, e.RequestURI, e.ResponseStatus.Code))
		}
	}
	return all
}

func (o *operator) events() []auditv1.Event {
	o.t.Helper()
	if err := o.cluster.AuditFence(soon(o.t)); err != nil {
		o.t.Fatal(err)
	}
	events, err := o.cluster.AuditEventsByUser(o.user)
	if err != nil {
		o.t.Fatal(err)
	}
	return events
}

// readsNothingElse proves that no Secret was asked for but by its name.
func (o *operator) readsNothingElse() {
	o.t.Helper()
	for _, e := range o.events() {
		if e.Verb == "list" || e.Verb == "watch" || e.ObjectRef != nil && e.ObjectRef.Resource == "secrets" && e.ObjectRef.Name != o.want.Secret {
			o.t.Errorf("asked for more than its own: %s %s", e.Verb, e.RequestURI)
		}
	}
}

// whoami is the user that the API server authenticates by the Secret's credential.
func (o *operator) whoami(credential controlplane.Credential) (string, error) {
	o.t.Helper()
	got := as(o.t, o.cluster, "whoami", credential).do(o.t, request{
		method: "POST", path: "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
	})
	if got.code != 201 {
		return "", fmt.Errorf("%d %s", got.code, got.message)
	}
	user, _ := got.object["status"].(fields)["userInfo"].(fields)["username"].(string)
	return user, nil
}

func (o *operator) mustBe(user string, credential controlplane.Credential) {
	o.t.Helper()
	got, err := o.whoami(credential)
	if err != nil || got != user {
		o.t.Errorf("the credential is of %q, %v; want %q", got, err, user)
	}
}
