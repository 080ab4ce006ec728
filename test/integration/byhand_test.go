//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// The manifests of the docs are applied here unchanged, and
// a reporter with that identity and that role, and no other, writes.
func TestFilesOfTheDocsWork(t *testing.T) {
	const folder, name, home = "../../docs/operate/by-hand/", "kms-health-reporter-by-hand", "kms-health"
	r := newReporter(t)
	admin, err := cluster.WriteKubeconfig(filepath.Join(r.dir, "admin"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: cluster.RESTConfig().BearerToken}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Kubectl(soon(t), nil, "--kubeconfig", admin, "apply", "--server-side", "--force-conflicts",
		"-f", folder+"rbac.yaml", "-f", folder+"configmap.yaml", "-f", folder+"daemonset.yaml"); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(folder + "configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file corev1.ConfigMap
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	text := file.Data["config.yaml"]
	config, err := v1alpha1.DecodeReporter([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	token, err := cluster.ServiceAccountToken(soon(t), home, name, controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	r.plugin("1")
	text = strings.ReplaceAll(text, config.Plugins[0].Endpoint, r.endpoint("1"))
	text = strings.ReplaceAll(text, config.Destination.Kubeconfig, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile))
	r.write([]byte(text + "probe: {interval: 1s}\n"))
	r.start()
	r.freshCondition(string(config.Destination.Resource), "1=healthy")
}
