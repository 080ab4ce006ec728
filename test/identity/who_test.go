//go:build integration

package identity

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// certificateUser is the user of the credentials that the owner of the API server's pods provides.
const certificateUser = "system:kms-health-reporter"

func clientset() *kubernetes.Clientset {
	config := cluster.RESTConfig()
	config.WarningHandlerWithContext = rest.NoWarnings{} // some tests cause warnings on purpose
	return kubernetes.NewForConfigOrDie(config)
}

// need fails the test unless err is nil or AlreadyExists.
func need(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// install installs the CRD in the resource's variant with its object, the RBAC objects of bindata for it, and the
// policy.
func install(t *testing.T, s operatorResource) {
	t.Helper()
	if s != kmsHealth {
		must.Succeed(t, cluster.ApplyOperatorCRDs(soon(t), s.variant))
	} else if got := asAdmin(t).do(t, request{method: http.MethodPost, path: collection(s), body: s.object(t, nil)}); got.code != http.StatusCreated && got.code != http.StatusConflict {
		t.Fatalf("%d %s", got.code, got.message)
	}
	_, err := clientset().CoreV1().Namespaces().Create(soon(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	need(t, err)
	applyAll(t, objects.Policy()...)
	applyAll(t, identity(s)...)
}

// bound returns a token like one in a projected volume: it names the node.
func bound(t *testing.T, node string) controlplane.Credential {
	t.Helper()
	client := clientset()
	_, err := client.CoreV1().Nodes().Create(soon(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	need(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "companion-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "kms-health", Image: "any"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	_, err = client.CoreV1().Pods(home).Create(soon(t), pod, metav1.CreateOptions{})
	need(t, err)
	pod, err = client.CoreV1().Pods(home).Get(soon(t), pod.Name, metav1.GetOptions{})
	must.Succeed(t, err)
	return token(t, account, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

func token(t *testing.T, name string, to *authenticationv1.BoundObjectReference) controlplane.Credential {
	t.Helper()
	made, err := cluster.ServiceAccountToken(soon(t), home, name, controlplane.TokenOptions{BoundTo: to})
	must.Succeed(t, err)
	return controlplane.Credential{Token: made}
}

func certified(t *testing.T, name string) controlplane.Credential {
	t.Helper()
	pair, err := cluster.SignUser(time.Hour, name)
	must.Succeed(t, err)
	return controlplane.Credential{Certificate: pair}
}

// as returns a caller with a credential.
func as(t *testing.T, name string, credential controlplane.Credential) *caller {
	t.Helper()
	return newCaller(t, name, cluster.RESTConfigAs(credential))
}

// reporters returns the three kinds of identity, in the order of the tables' columns. It waits until RBAC and
// admission, which read from caches, are active.
func reporters(t *testing.T, s operatorResource) []*caller {
	t.Helper()
	install(t, s)
	all := []*caller{
		as(t, "bound to node-a", bound(t, "node-a")),
		as(t, "minted", token(t, account, nil)),
		as(t, "certificate", certified(t, certificateUser)),
	}
	s.reset(t, asAdmin(t))
	for _, who := range all {
		eventually(t, who.name+" may, and is bounded", func() error {
			forged := s.apply(t, contract.ConditionManager("node-z"), fields{"conditions": []any{condition("KMSPluginsDegraded", "")}})
			return errors.Join(who.tried(t, s.condition(t, "node-a").dry(), ok), who.tried(t, forged.dry(), byPolicy))
		})
	}
	return all
}

// allowAll gives a user all rights on the operator resources, until the test ends.
func allowAll(t *testing.T, user string) {
	t.Helper()
	client := clientset()
	role, err := client.RbacV1().ClusterRoles().Create(soon(t), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "all-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{controlplane.OperatorGroup, contract.KMSHealths.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(soon(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	awaitAll(t, user, true)
	t.Cleanup(func() {
		if err := client.RbacV1().ClusterRoleBindings().Delete(soon(t), role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		awaitAll(t, user, false)
	})
}

// awaitAll waits until the authorizer, which reads from a cache, allows or refuses all to the user.
func awaitAll(t *testing.T, user string, allowed bool) {
	t.Helper()
	client := clientset()
	eventually(t, fmt.Sprintf("%s may do all: %t", user, allowed), func() error {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(soon(t), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: controlplane.OperatorGroup, Version: "v1", Resource: "any", Verb: "delete",
			}},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != allowed {
			err = fmt.Errorf("allowed: %t", review.Status.Allowed)
		}
		return err
	})
}
