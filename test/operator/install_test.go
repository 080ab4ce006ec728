//go:build integration

package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/manifests/install"
)

// setUp makes the namespaces of OpenShift, and applies what the operator ships
// with: its own rights, and those of every component. Its Deployment is there as
// well, but its pods only seem to run, so it does not get in the way.
func setUp(ctx context.Context) error {
	for _, name := range targetNamespaces {
		if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return install.Apply(ctx, cluster.RESTConfig(), install.OpenShift, "deployment", "client-certificates", "client-certificates/approve", "legacy-token")
}
