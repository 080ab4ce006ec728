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

	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// operator is a Manager with an identity of its own, the rights that it needs and
// no more, and a fixed clock.
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

func newOperator(t *testing.T, c *controlplane.ControlPlane) *operator {
	t.Helper()
	name := fmt.Sprint(time.Now().UnixNano())
	o := &operator{
		t: t, cluster: c, admin: clientset(t, c), user: controlplane.ServiceAccountUser(home, "operator-"+name),
		clock: clocktesting.NewFakePassiveClock(time.Now()),
		want: credentials.Request{
			Namespace: home, Secret: "kms-health-reporter-" + name, ServiceAccount: "kms-health-reporter-" + name,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "kms-health-operator"},
		},
	}
	_, err := o.admin.CoreV1().Namespaces().Create(soon(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	need(t, err)
	o.account("operator-" + name)
	o.account(o.want.ServiceAccount)
	o.grant(
		// A Server-Side Apply names what it creates, so a name bounds that, too.
		rule("secrets", o.want.Secret, "get", "delete", "create", "patch"),
		rule("serviceaccounts", o.want.ServiceAccount, "get"),
		rule("serviceaccounts/token", o.want.ServiceAccount, "create"),
	)
	config := c.RESTConfigAs(token(t, c, "operator-"+name, nil))
	if o.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	o.manager = credentials.New(o.client, o.clock.Now)
	t.Cleanup(o.readsNothingElse)
	return o
}

func rule(resource, name string, verbs ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
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

// grant gives the operator rights in all namespaces, and waits until they are active.
func (o *operator) grant(rules ...rbacv1.PolicyRule) {
	o.t.Helper()
	name := "operator-of-" + o.want.Secret // the reporter's own ClusterRole has the Secret's name
	_, err := o.admin.RbacV1().ClusterRoles().Create(soon(o.t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	need(o.t, err)
	_, err = o.admin.RbacV1().ClusterRoleBindings().Create(soon(o.t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.user}},
	}, metav1.CreateOptions{})
	need(o.t, err)
	eventually(o.t, "the operator may write its Secret", func() error {
		review, err := o.admin.AuthorizationV1().SubjectAccessReviews().Create(soon(o.t), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: o.user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Version: "v1", Resource: "secrets", Namespace: home, Name: o.want.Secret, Verb: "patch",
			}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("it is not allowed")
		}
		return err
	})
}

// try calls Ensure once. Its result contains nothing of the Secret.
func (o *operator) try() credentials.Result {
	o.t.Helper()
	result := o.manager.Ensure(soon(o.t), o.want)
	if result.Next.Before(o.clock.Now()) || result.Next.After(o.clock.Now().Add(time.Hour)) {
		o.t.Errorf("next check at %v, but it is %v", result.Next, o.clock.Now())
	}
	text := fmt.Sprintf("%+v", result)
	if result.Problem != nil {
		text = fmt.Sprintf("%s %+v", text, *result.Problem)
	}
	if secret := o.secret(); secret != nil {
		for key, value := range secret.Data {
			if len(value) > 20 && key != "ca.crt" && strings.Contains(text, string(value[:20])) {
				o.t.Errorf("the result contains %s: %s", key, text)
			}
		}
	}
	return result
}

// must calls Ensure once, and wants no problem.
func (o *operator) must() credentials.Result {
	o.t.Helper()
	result := o.try()
	if result.Problem != nil {
		o.t.Fatalf("%+v, %v", result, result.Problem)
	}
	return result
}

// settle calls Ensure until the credential is fresh.
func (o *operator) settle() {
	o.t.Helper()
	eventually(o.t, "the credential is as expected", func() error {
		if result := o.try(); result.Problem != nil || result.RenewAt.Before(o.clock.Now()) {
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
		o.must()
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
