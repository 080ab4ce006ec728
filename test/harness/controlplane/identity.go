package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/wait"
)

const identityTimeout = 2 * time.Minute

func (c *ControlPlane) kube() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(c.RESTConfig())
}

// ServiceAccountUser returns the user name of a ServiceAccount.
func ServiceAccountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// CreateServiceAccount creates a ServiceAccount without any rights, and its namespace if that is missing.
func (c *ControlPlane) CreateServiceAccount(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	client := c.kube()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{})
	return err
}

// AllowStatusPatch gives a user the rights of a reporter: to patch the status of the object "cluster" of these
// operator resources. The user is a result of ServiceAccountUser, or a certificate's common name. AllowStatusPatch
// waits until the authorizer, which reads roles from a cache, allows it.
func (c *ControlPlane) AllowStatusPatch(ctx context.Context, user string, resources ...string) error {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	client := c.kube()
	rule := rbacv1.PolicyRule{
		APIGroups:     []string{OperatorGroup},
		ResourceNames: []string{ClusterObject},
		Verbs:         []string{"patch"},
	}
	for _, resource := range resources {
		rule.Resources = append(rule.Resources, resource+"/status")
	}
	role, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "status-patch-"},
		Rules:      []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role of %s: %w", user, err)
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		// Kind User also works for a ServiceAccount, by its user name.
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role of %s: %w", user, err)
	}
	return AwaitAllowed(ctx, client, user, &authorizationv1.ResourceAttributes{ // one role: the others are allowed too
		Group: OperatorGroup, Version: "v1", Resource: resources[0], Subresource: "status",
		Name: ClusterObject, Verb: "patch",
	})
}

// AwaitAllowed waits until the authorizer, which reads roles from a cache, allows this to the user.
func AwaitAllowed(
	ctx context.Context, client kubernetes.Interface, user string, may *authorizationv1.ResourceAttributes,
) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: may,
	}}
	what := fmt.Sprintf("%s may %s %s", user, may.Verb, may.Resource)
	return wait.For(ctx, identityTimeout, what, func(ctx context.Context) error {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("not allowed %s", answer.Status.Reason)
		}
		return err
	})
}

// TokenOptions are the options of ServiceAccountToken.
type TokenOptions struct {
	// Lifetime is at least ten minutes: the API requires it. Zero means a day, since some tests take an hour.
	Lifetime time.Duration
	// BoundTo is a Pod, Secret or Node. The token becomes invalid when it is deleted. A token that is bound to a Pod
	// also names its node. Nil: the token is bound to the ServiceAccount only.
	BoundTo *authenticationv1.BoundObjectReference
}

// ServiceAccountToken requests a token by TokenRequest.
func (c *ControlPlane) ServiceAccountToken(
	ctx context.Context, namespace, name string, options TokenOptions,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	lifetime := cmp.Or(options.Lifetime, 24*time.Hour)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: options.BoundTo, ExpirationSeconds: new(int64(lifetime.Seconds())),
	}}
	answer, err := c.kube().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("mint a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return answer.Status.Token, nil
}
