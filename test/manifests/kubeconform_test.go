//go:build !integration

package manifests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/manifests/install"
)

const kubeconformProgram = "../../.tools/kubeconform/kubeconform"

// kubeconform fails on unknown kinds and unknown fields of these files. It needs no API server:
// one is asked the same by TestEveryInstallIsAcceptedByKubectlAsItStands, and what no schema has.
func kubeconform(t *testing.T, schemas string, files map[string]string) (out []byte, err error) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name+".yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return exec.CommandContext(t.Context(), kubeconformProgram, "-strict", "-summary",
		"-schema-location", filepath.Join(schemas, "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"), folder).CombinedOutput()
}

// everyManifest is what people apply, by a name: each install, what `render` makes, the files
// for a reporter by hand, and the rights of those who use the kubectl plugin.
func everyManifest(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	read := func(path string) []byte {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	ca := read("../testdata/ca.crt")
	for overlay, all := range installs {
		for _, components := range all {
			rendered, err := install.YAML(t.Context(), ca, overlay, components...)
			if err != nil {
				t.Fatal(err)
			}
			files[overlay+"+"+strings.ReplaceAll(strings.Join(components, "+"), "/", "-")] = string(rendered)
		}
	}
	byHand, err := filepath.Glob("../../docs/operate/by-hand/*.yaml")
	if err != nil || len(byHand) == 0 {
		t.Fatal("no files for a reporter by hand", err)
	}
	for _, path := range byHand {
		files["by-hand-"+filepath.Base(path)] = string(read(path))
	}
	for i, found := range regexp.MustCompile("(?s)```yaml\n(# viewer.*?)```").FindAllStringSubmatch(string(read("../../docs/reference/kubectl.md")), -1) {
		files[fmt.Sprintf("page-viewer-%d", i)] = found[1]
	}
	config, err := v1alpha1.DecodeOperator(read("../testdata/operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for pod, target := range map[string]string{"": "kube-apiserver", "static-pod.yaml": "kube-apiserver", "deployment.yaml": "openshift-apiserver"} {
		in := render.Input{
			Config: config, Target: target, Namespace: "kms-health", HostFolder: "/etc/kubernetes/kms-health",
			EncryptionConfig: read("../testdata/encryption-config.yaml"), CA: ca,
		}
		if pod != "" {
			in.Pod = read("../testdata/" + pod)
		}
		made, err := render.Render(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made {
			if !strings.HasPrefix(f.Name, "host/") { // files of the node
				files["render-"+pod+"-"+f.Name] = string(f.Data)
			}
		}
	}
	return files
}

func TestManifestsAreValidByTheSchemas(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	if _, err := os.Stat(kubeconformProgram); err != nil {
		t.Skip("there is no kubeconform: make verify ONLY=manifests")
	}
	schemas, files := writeSchemas(t), everyManifest(t)
	out, err := kubeconform(t, schemas, files)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d files: %s", len(files), out)

	// A misspelt field is found wherever it is.
	for field, in := range map[string]string{
		"labels":                   "kubernetes+", // of every kind
		"terminationMessagePolicy": "kubernetes+",
		"matchConditions":          "kubernetes+",
		"nonResourceURLs":          "page-viewer-0",
		"allowedCapabilities":      "openshift+", // of a CRD of OpenShift
		"relatedObjects":           "openshift+",
		"bearerTokenFile":          "openshift+", // of a CRD of Prometheus's operator
		"keep_firing_for":          "kubernetes+monitoring",
		"hostPath":                 "render--40-daemonset-kms-health-reporter-kube-apiserver.yaml",
	} {
		misspelt := strings.Replace(files[in], field+":", field+"x:", 1)
		if misspelt == files[in] {
			t.Errorf("%s has no %s", in, field)
		}
		if out, err := kubeconform(t, schemas, map[string]string{"misspelt": misspelt}); err == nil || !strings.Contains(string(out), field+"x") {
			t.Errorf("%s with %sx: %v\n%s", in, field, err, out)
		}
	}
}
