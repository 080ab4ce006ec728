//go:build integration

package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// renderInto runs the command render, and returns the folder with its files.
func renderInto(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(fixture.Binary, append([]string{"render", "--output-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), "IS_OPENSHIFT=true")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func TestRenderedFilesAreAccepted(t *testing.T) {
	const data = "../../testdata/"
	kubectl := fixture.NewKubectl(t)
	common := []string{"--config", data + "operator.yaml", "--encryption-config", data + "encryption-config.yaml", "--ca-file", data + "ca.crt", "--namespace", fixture.Namespace}
	for name, args := range map[string][]string{
		"DaemonSet":  {"--api-server", "kube-apiserver"},
		"Deployment": {"--api-server", "openshift-apiserver", "--pod", data + "deployment.yaml"}, // without its patch
		"static pod": {"--api-server", "kube-apiserver", "--pod", data + "static-pod.yaml"},
	} {
		dir := renderInto(t, append(common, args...)...)
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		must.Succeed(t, err)
		static, err := filepath.Glob(filepath.Join(dir, "host", "*.json"))
		must.Succeed(t, err)
		if len(files) == 0 {
			t.Errorf("%s: there is no file", name)
		}
		for _, file := range append(files, static...) {
			text := disk.Read(t, file)
			// An installer replaces these in each file that it writes.
			installed := strings.NewReplacer("NODE_NAME", fixture.NodeNames[0], "REVISION", "7").Replace(string(text))
			disk.Write(t, file, []byte(installed))
			if out, code := kubectl("apply", "--dry-run=server", "-f", file); code != 0 || !strings.Contains(out, "(server dry run)") {
				t.Errorf("%s: %s: %s", name, file, out)
			}
		}
	}
}

func TestRenderAndTheControllerGiveTheSameBytes(t *testing.T) {
	op := fixture.NewOperator(t)
	config := "image: reporter:1\n" + fixture.KubeAPIServer("mode: DaemonSet", `connection: {fallbacks: [{url: "https://api-int.example.com:6443"}]}`)
	text := apiservers.Encryption("2", "1", "identity")
	fixture.SetEncryption(t, apiservers.Kube, text, "1")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("1", true))
	op.Start(config)
	var live *appsv1.DaemonSet
	fixture.Eventually(t, "the DaemonSet is created", func() (err error) {
		live, err = fixture.Kube.AppsV1().DaemonSets(fixture.Namespace).Get(t.Context(), contract.ReporterName(apiservers.Kube.Name),
			metav1.GetOptions{})
		return err
	})

	pod, err := fixture.Kube.CoreV1().Pods("openshift-kube-apiserver").Get(t.Context(), "kube-apiserver-"+fixture.NodeNames[0], metav1.GetOptions{})
	must.Succeed(t, err)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	podText, err := yaml.Marshal(pod)
	must.Succeed(t, err)
	args := []string{"--config", op.Config, "--namespace", fixture.Namespace}
	for flag, content := range map[string][]byte{
		"--encryption-config": []byte(text), "--ca-file": fixture.Cluster.ServingCA().PEM(), "--pod": podText,
	} {
		file := filepath.Join(op.Dir, flag)
		disk.Write(t, file, content)
		args = append(args, flag, file)
	}
	files, err := filepath.Glob(filepath.Join(renderInto(t, args...), "40-daemonset-*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	raw := disk.Read(t, files[0])
	var rendered appsv1.DaemonSet
	must.Succeed(t, yaml.Unmarshal(raw, &rendered))
	must.Equal(t, "the annotations", rendered.Spec.Template.Annotations, live.Spec.Template.Annotations)
}
