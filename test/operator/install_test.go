//go:build integration

package operator

import (
	"context"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// installOperator makes the namespaces of OpenShift, and applies what the operator ships
// with: its own rights, and those of every component. Its Deployment is there as
// install too, but its pods only seem to run, so it does nothing.
func installOperator(ctx context.Context) error {
	if err := apiservers.CreateNamespaces(ctx, kube); err != nil {
		return err
	}
	return install.Apply(ctx, cluster.RESTConfig(), install.OpenShift, components...)
}

// components are those of manifests/components that the tests need.
var components = []string{"deployment", "client-certificates", "client-certificates/approve", "legacy-token"}
