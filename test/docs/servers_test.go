package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// openShiftKubeconfig is an administrator's, of an API server with what OpenShift has before
// kms-health is installed: its CRDs and namespaces.
func openShiftKubeconfig(t *testing.T) string {
	t.Helper()
	c := controlplane.StartForTest(t, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade})
	if err := c.ApplyOpenShiftConfig(t.Context(), controlplane.TechPreviewNoUpgrade); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := apiservers.CreateNamespaces(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	path := administrator(t, c)
	prometheus, err := program.ModuleDir("kubeconform", "github.com/prometheus-operator/prometheus-operator")
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_")
	if err := c.InstallCRDs(t.Context(), crds+"servicemonitors.yaml", crds+"prometheusrules.yaml", withoutPriority(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := install.Kubectl(t.Context(), nil, "--kubeconfig", path, "create", "namespace", "openshift-config-managed"); err != nil {
		t.Fatal(err)
	}
	return path
}

// withoutPriority is the CRD of SCCs without its required field priority: kubectl leaves out
// fields that are null, and OpenShift's admission, which no test has, sets them again.
func withoutPriority(t *testing.T) string {
	t.Helper()
	folder, err := controlplane.OpenShiftAPIDir()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(folder, "security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(path, regexp.MustCompile(`\n +- priority\n`).ReplaceAll(raw, []byte("\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plainKubeconfig is an administrator's, of an API server without anything of OpenShift, on which
// the operator has created what it reports in.
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
	if err := c.StartControllerManager(t.Context(), controlplane.ControllerManagerOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := c.WriteKubeconfig(t.TempDir(), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: c.RESTConfig().BearerToken}})
	if err != nil {
		t.Fatal(err)
	}
	return path
}
