package docs

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// openShiftKubeconfig returns an administrator's kubeconfig for an API server with OpenShift's CRDs and namespaces, but
// without kms-health.
func openShiftKubeconfig(t *testing.T) string {
	t.Helper()
	c := controlplane.StartForTest(t, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade})
	must.Succeed(t, c.ApplyOpenShiftConfig(t.Context(), controlplane.TechPreviewNoUpgrade))
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	must.Succeed(t, apiservers.CreateNamespaces(t.Context(), client))
	path := administrator(t, c)
	must.Succeed(t, c.ApplyMonitoringCRDs(t.Context()))
	_, err := install.Kubectl(t.Context(), nil, "--kubeconfig", path, "create", "namespace", "openshift-config-managed")
	must.Succeed(t, err)
	return path
}

// plainKubeconfig returns an administrator's kubeconfig for an API server without OpenShift, on which the operator has
// created its KMSHealth.
func plainKubeconfig(t *testing.T) string {
	t.Helper()
	c := controlplane.StartForTest(t, controlplane.Options{})
	path := administrator(t, c)
	must.Succeed(t, c.InstallCRDs(t.Context(), "../../manifests/kubernetes/crd.yaml"))
	object := []byte(`{"apiVersion": "kmshealth.openshift.io/v1alpha1", "kind": "KMSHealth", "metadata": {"name": "kube-apiserver"}}`)
	_, err := install.Kubectl(t.Context(), object, "--kubeconfig", path, "create", "-f", "-")
	must.Succeed(t, err)
	return path
}

func administrator(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	must.Succeed(t, c.StartControllerManager(t.Context(), controlplane.OperatorControllers...))
	return c.AdminKubeconfig(t)
}
