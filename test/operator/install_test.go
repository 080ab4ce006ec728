//go:build integration

package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// install makes the namespaces of OpenShift, and what the operator ships with.
func install(ctx context.Context) error {
	for _, name := range []string{home, "openshift-kube-apiserver", "openshift-apiserver", "openshift-oauth-apiserver"} {
		if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := cluster.CreateServiceAccount(ctx, home, operatorAccount); err != nil {
		return err
	}
	_, err := kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "temporary"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: home, Name: operatorAccount}},
	}, metav1.CreateOptions{})
	return err
}
