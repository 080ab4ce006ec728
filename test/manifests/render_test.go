//go:build !integration

package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// Whoever patches a Deployment, by kubectl or a kustomization, has the same as who gives its
// manifest to `render`; and a second time changes nothing.
func TestRenderedPatchMakesTheRenderedDeployment(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	read := func(name string) []byte {
		raw := disk.Read(t, "../testdata/"+name)
		return raw
	}
	config, err := v1alpha1.DecodeOperator(read("operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	in := render.Input{
		Config: config, Target: "openshift-apiserver", Namespace: "kms-health",
		EncryptionConfig: read("encryption-config.yaml"), CA: read("ca.crt"),
	}
	made := func(name string) []byte {
		t.Helper()
		files, err := render.Render(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Name == name {
				return f.Data
			}
		}
		t.Fatalf("no %s", name)
		return nil
	}
	patch := made("sidecar/patch.yaml")
	in.Pod = []byte(strings.ReplaceAll(string(read("deployment.yaml")), "kms-sockets", "kms-plugin-socket"))
	want := made("50-deployment-apiserver.yaml")

	for how, arguments := range map[string]string{
		"kubectl patch": "patch --local -f DIR/deployment.yaml --patch-file DIR/patch.yaml -o yaml", "kustomize": "kustomize DIR",
	} {
		deployment := in.Pod
		for range 2 {
			dir := t.TempDir()
			for name, content := range map[string][]byte{
				"deployment.yaml": deployment, "patch.yaml": patch,
				"kustomization.yaml": []byte("resources: [deployment.yaml]\npatches: [{path: patch.yaml}]\n"),
			} {
				disk.Write(t, filepath.Join(dir, name), content)
			}
			deployment, err = install.Kubectl(t.Context(), nil, strings.Fields(strings.ReplaceAll(arguments, "DIR", dir))...)
			if err != nil {
				t.Fatal(err)
			}
			var objects [2]map[string]any
			for i, text := range [][]byte{want, deployment} {
				if err := yaml.Unmarshal(text, &objects[i]); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(objects[0], objects[1]); d != "" {
				t.Errorf("%s (-render +%s):\n%s", how, how, d)
			}
		}
	}
}
