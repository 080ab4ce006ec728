package docs

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// openShiftKubeconfig returns an administrator's kubeconfig for an API server with OpenShift's CRDs and namespaces, but
// without kms-health.
func openShiftKubeconfig(t *testing.T) string {
	t.Helper()
	c := controlplane.StartForTest(t, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade})
	if err := c.ApplyOpenShiftConfig(t.Context(), controlplane.TechPreviewNoUpgrade); err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	if err := apiservers.CreateNamespaces(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	path := administrator(t, c)
	if err := c.ApplyMonitoringCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := install.Kubectl(t.Context(), nil, "--kubeconfig", path, "create", "namespace", "openshift-config-managed"); err != nil {
		t.Fatal(err)
	}
	return path
}

// plainKubeconfig returns an administrator's kubeconfig for an API server without OpenShift, on which the operator has
// created its KMSHealth.
func plainKubeconfig(t *testing.T) string {
	t.Helper()
	c := controlplane.StartForTest(t, controlplane.Options{})
	path := administrator(t, c)
	if err := c.InstallCRDs(t.Context(), "../../manifests/kubernetes/crd.yaml"); err != nil {
		t.Fatal(err)
	}
	object := []byte(`{"apiVersion": "kmshealth.openshift.io/v1alpha1", "kind": "KMSHealth", "metadata": {"name": "kube-apiserver"}}`)
	if _, err := install.Kubectl(t.Context(), object, "--kubeconfig", path, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	return path
}

func administrator(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	if err := c.StartControllerManager(t.Context(), controlplane.OperatorControllers...); err != nil {
		t.Fatal(err)
	}
	return c.AdminKubeconfig(t)
}
