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
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// strictPodSecurity enforces the level restricted in each namespace without a label, as RKE2 with its CIS profile does.
// Talos enforces baseline.
const strictPodSecurity = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: restricted}}
`

// The files of `render`, applied with the commands of docs/operate/by-hand.md, must be admitted.
func TestRenderedFilesWorkWherePodSecurityIsStrict(t *testing.T) {
	dir := t.TempDir()
	out, file := filepath.Join(dir, "out"), filepath.Join(dir, "admission.yaml")
	disk.Write(t, file, []byte(strictPodSecurity))
	config, err := v1alpha1.DecodeOperator(v1alpha1.OperatorKubernetes)
	must.Succeed(t, errors.Join(err, os.Mkdir(out, 0o755)))
	config.Image = "kms-health-reporter"
	files, _, err := render.Render(render.Input{Input: objects.Input{
		Config: config, Namespace: "kms-health", CA: disk.Read(t, "../testdata/ca.crt")}})
	must.Succeed(t, err)
	var agents appsv1.DaemonSet
	for _, f := range files {
		disk.Write(t, filepath.Join(out, f.Name), f.Data)
		if strings.Contains(f.Name, "daemonset") {
			must.Succeed(t, yaml.Unmarshal(f.Data, &agents))
		}
	}
	strict := controlplane.StartForTest(t, controlplane.Options{ExtraArgs: []string{"--admission-control-config-file=" + file}})
	admin := strict.AdminKubeconfig(t)
	section, _, _ := strings.Cut(string(disk.Read(t, "../../docs/operate/by-hand.md")), "On OpenShift, ")
	here := strings.NewReplacer("kubectl", "--kubeconfig "+admin, " manifests/", " ../../manifests/", " out", " "+out)
	for _, command := range typed.Commands(section) {
		_, err := install.Kubectl(soon(t), nil, strings.Fields(here.Replace(command))...)
		must.Succeed(t, err)
	}
	pod := corev1.Pod{ObjectMeta: agents.Spec.Template.ObjectMeta, Spec: agents.Spec.Template.Spec}
	pod.APIVersion, pod.Kind, pod.Namespace, pod.Name = "v1", "Pod", agents.Namespace, "agent"
	_, err = install.Kubectl(soon(t), []byte(contract.Marshal(pod)), "--kubeconfig", admin, "create", "-f", "-")
	must.Succeed(t, err)
}
