package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// kubectl and a kustomization patch a Deployment to the same result: it has one more container, the last. A second
// patch changes nothing.
func TestRenderedPatchAddsTheLastContainer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	read := func(name string) []byte { return disk.Read(t, "../testdata/"+name) }
	config, err := v1alpha1.DecodeOperator(read("operator.yaml"))
	must.Succeed(t, err)
	given := read("deployment.yaml")
	files, _, err := render.Render(render.Input{
		Input:     objects.Input{Config: config, Namespace: "kms-health", CA: read("ca.crt")},
		APIServer: "openshift-apiserver", EncryptionConfig: read("encryption-config.yaml"), Pod: given,
	})
	must.Succeed(t, err)
	patch := files[slices.IndexFunc(files, func(f render.File) bool { return f.Name == "sidecar/patch.yaml" })].Data
	var before appsv1.Deployment
	must.Succeed(t, yaml.Unmarshal(given, &before))

	var made []appsv1.Deployment
	for how, arguments := range map[string]string{
		"kubectl patch": "patch --local -f DIR/deployment.yaml --patch-file DIR/patch.yaml -o yaml", "kustomize": "kustomize DIR",
	} {
		deployment := given
		for range 2 {
			dir := t.TempDir()
			for name, content := range map[string][]byte{
				"deployment.yaml": deployment, "patch.yaml": patch,
				"kustomization.yaml": []byte("resources: [deployment.yaml]\npatches: [{path: patch.yaml}]\n"),
			} {
				disk.Write(t, filepath.Join(dir, name), content)
			}
			deployment, err = install.Kubectl(t.Context(), nil, strings.Fields(strings.ReplaceAll(arguments, "DIR", dir))...)
			must.Succeed(t, err)
			var after appsv1.Deployment
			must.Succeed(t, yaml.UnmarshalStrict(deployment, &after))
			made = append(made, after)
			if diff := cmp.Diff(made[0], after); diff != "" {
				t.Errorf("%s (-first +now): %s", how, diff)
			}
		}
	}
	containers, n := made[0].Spec.Template.Spec.Containers, len(before.Spec.Template.Spec.Containers)
	if len(containers) != n+1 || containers[n].Name != contract.ReporterContainer {
		t.Errorf("containers %+v", containers)
	}
	if diff := cmp.Diff(before.Spec.Template.Spec.Containers, containers[:n]); diff != "" {
		t.Errorf("the others (-before +now): %s", diff)
	}
}
