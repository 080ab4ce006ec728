//go:build integration

package operator

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// renderInto runs the command, and returns its folder.
func renderInto(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(binary, append([]string{"render", "--output-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), "IS_OPENSHIFT=true")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	kubeconfig, err := cluster.WriteKubeconfig(t.TempDir(), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: cluster.RESTConfig().BearerToken}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

func TestRenderedFilesAreAccepted(t *testing.T) {
	const data = "../testdata/"
	common := []string{"--config", data + "operator.yaml", "--encryption-config", data + "encryption-config.yaml", "--ca-file", data + "ca.crt", "--namespace", operatorNamespace}
	for name, args := range map[string][]string{
		"DaemonSet":  {"--target", "kube-apiserver"},
		"Deployment": {"--target", "openshift-apiserver", "--pod", data + "deployment.yaml"},
		"static pod": {"--target", "kube-apiserver", "--pod", data + "static-pod.yaml"},
	} {
		dir := renderInto(t, append(common, args...)...)
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// What an installer does to every file that it writes.
			installed := strings.NewReplacer("NODE_NAME", nodeNames[0], "REVISION", "7").Replace(string(text))
			if err := os.WriteFile(file, []byte(installed), 0o600); err != nil {
				t.Fatal(err)
			}
			out := kubectl(t, "apply", "--dry-run=server", "-f", file)
			t.Logf("%s: %s", name, strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
			if !strings.Contains(out, "(server dry run)") {
				t.Errorf("%s: %s", file, out)
			}
		}
	}
}

func TestRenderAndTheControllerGiveTheSameBytes(t *testing.T) {
	op := newOperator(t)
	file := "image: reporter:1\n" + targets(apiservers.Kube.Target())
	op.configure(file)
	text := apiservers.Encryption("2", "1", "identity")
	encryptionFile, ca := filepath.Join(op.dir, "encryption.yaml"), filepath.Join(op.dir, "ca.crt")
	for path, content := range map[string][]byte{encryptionFile: []byte(text), ca: cluster.ServingCA().PEM()} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, onHost := range []bool{true, false} {
		setEncryption(t, apiservers.Kube, text, "1")
		runStatic(t, nodeNames[0], staticPod("1", onHost))
		t.Cleanup(func() { removeStatics(t) })
		op.start("")
		reason := map[bool]string{true: "SocketsOnHost", false: "SocketsInPods"}[onHost]
		awaitCondition(t, "kubeapiservers", "True", reason)

		pod, err := kube.CoreV1().Pods("openshift-kube-apiserver").Get(t.Context(), "kube-apiserver-"+nodeNames[0], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		podFile := filepath.Join(op.dir, "pod.yaml")
		raw, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(podFile, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		dir := renderInto(t, "--config", op.config, "--encryption-config", encryptionFile, "--pod", podFile, "--ca-file", ca, "--namespace", operatorNamespace)
		if onHost {
			var rendered corev1.ConfigMap
			readYAML(t, filepath.Join(dir, "30-configmap-kms-health-reporter-kube-apiserver.yaml"), &rendered)
			live, err := kube.CoreV1().ConfigMaps(operatorNamespace).Get(t.Context(), "kms-health-reporter-kube-apiserver", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range live.Data {
				if rendered.Data[key] != value {
					t.Errorf("%s: rendered\n%s\nthe controller's\n%s", key, rendered.Data[key], value)
				}
			}
			op.configure("targets: []\n")
			op.awaitNothingLeft()
			op.kill(syscall.SIGTERM)
			op.configure(file)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "40-pod-*.yaml"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v %v", files, err)
		}
		var rendered unstructured.Unstructured
		readYAML(t, files[0], &rendered.Object)
		live, err := kube.CoreV1().Pods(operatorNamespace).Get(t.Context(), rendered.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the controller's pod has another name: %v", err)
		}
		for _, key := range []string{manifests.ConfigAnnotation, manifests.KubeconfigAnnotation, manifests.ConfigHashAnnotation, manifests.PodHashAnnotation} {
			if got := rendered.GetAnnotations()[key]; got != live.Annotations[key] {
				t.Errorf("%s: rendered\n%s\nthe controller's\n%s", key, got, live.Annotations[key])
			}
		}
	}
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
