//go:build integration

package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// The manifests of the docs are applied here unchanged, and
// a reporter with that identity and that role, and no other, writes.
func TestFilesOfTheDocsWork(t *testing.T) {
	const folder, name, home = "../../docs/operate/by-hand/", "kms-health-reporter-by-hand", "kms-health"
	r := newReporter(t)
	if _, err := install.Kubectl(soon(t), nil, "--kubeconfig", cluster.AdminKubeconfig(t), "apply", "--server-side", "--force-conflicts",
		"-f", folder+"rbac.yaml", "-f", folder+"configmap.yaml", "-f", folder+"daemonset.yaml"); err != nil {
		t.Fatal(err)
	}
	raw := disk.Read(t, folder+"configmap.yaml")
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
	for _, server := range config.Destination.Servers {
		text = strings.ReplaceAll(text, server.URL, cluster.URL())
	}
	text = strings.ReplaceAll(text, config.Destination.Kubeconfig, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile))
	r.write([]byte(text + "probe: {interval: 1s}\n"))
	r.start()
	r.freshCondition(string(config.Destination.Resource), "1=healthy")
}

// Talos enforces the level baseline in each namespace without a label, and RKE2 by its CIS profile restricted.
const strictPodSecurity = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: restricted}}
`

// The files of `render`, applied by the page's commands, make agents.
func TestRenderedFilesWorkWherePodSecurityIsStrict(t *testing.T) {
	dir := t.TempDir()
	out, file := filepath.Join(dir, "out"), filepath.Join(dir, "admission.yaml")
	disk.Write(t, file, []byte(strictPodSecurity))
	config, err := v1alpha1.DecodeOperator(v1alpha1.OperatorKubernetes)
	if err := errors.Join(err, os.Mkdir(out, 0o755)); err != nil {
		t.Fatal(err)
	}
	config.Image = "kms-health-reporter"
	files, err := render.Render(render.Input{Config: config, Namespace: "kms-health", CA: disk.Read(t, "../testdata/ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	var agents appsv1.DaemonSet
	for _, f := range files {
		disk.Write(t, filepath.Join(out, f.Name), f.Data)
		if !strings.Contains(f.Name, "daemonset") {
			continue
		}
		if err := yaml.Unmarshal(f.Data, &agents); err != nil {
			t.Fatal(err)
		}
	}
	strict := controlplane.StartForTest(t, controlplane.Options{ExtraArgs: []string{"--admission-control-config-file=" + file}})
	admin := strict.AdminKubeconfig(t)
	section, _, _ := strings.Cut(string(disk.Read(t, "../../docs/operate/by-hand.md")), "On OpenShift, apply these files:")
	here := strings.NewReplacer("kubectl", "--kubeconfig "+admin, " manifests/", " ../../manifests/", " out", " "+out)
	for _, command := range typed.Commands(section) {
		if _, err := install.Kubectl(soon(t), nil, strings.Fields(here.Replace(command))...); err != nil {
			t.Fatal(err)
		}
	}
	pod := corev1.Pod{ObjectMeta: agents.Spec.Template.ObjectMeta, Spec: agents.Spec.Template.Spec}
	pod.APIVersion, pod.Kind, pod.Namespace, pod.Name = "v1", "Pod", agents.Namespace, "agent"
	if _, err := install.Kubectl(soon(t), []byte(contract.Marshal(pod)), "--kubeconfig", admin, "create", "-f", "-"); err != nil {
		t.Error(err)
	}
}
