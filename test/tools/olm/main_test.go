package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// made returns the files, and the objects of the manifests.
func made(t *testing.T) (map[string][]byte, []*unstructured.Unstructured) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	rendered, err := install.Manifests{Images: map[string]string{
		"registry.invalid/kms-health-operator": operator, "registry.invalid/kms-health-reporter": reporter,
	}}.YAML(t.Context(), ".")
	must.Succeed(t, err)
	files, err := makeBundle(rendered, "1.2.3", "1970-01-01T00:00:00Z", []string{"amd64"})
	must.Succeed(t, err)
	return files, decoded(t, rendered)
}

var (
	operator = "registry.example.com/operator@sha256:" + strings.Repeat("1", 64)
	reporter = "registry.example.com/reporter@sha256:" + strings.Repeat("2", 64)
)

func id(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

func decoded(t *testing.T, raw []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := install.Decode(raw)
	must.Succeed(t, err)
	return objects
}

// OLM drops the namespace of an object in a bundle, and ignores or rejects unknown kinds. So an object in the wrong
// file would be lost.
func TestEachObjectOfTheManifestsIsInOnePlace(t *testing.T) {
	files, objects := made(t)
	places := map[string]int{}
	for name, raw := range files {
		if !strings.HasPrefix(name, "bundle/manifests/") {
			continue
		}
		for _, o := range decoded(t, raw) {
			if o.GetKind() == "ClusterServiceVersion" {
				continue
			}
			if o.GetNamespace() != "" || !slices.Contains(carriedKinds, o.GetKind()) {
				t.Errorf("%s has %s, which OLM does not install as it is", name, id(o))
			}
			o.SetNamespace(install.Namespace(install.OpenShift))
			places[id(o)]++
		}
	}
	for _, o := range append(decoded(t, files["olm-prerequisites.yaml"]), decoded(t, files["olm-config.yaml"])...) {
		places[id(o)]++
	}
	own := install.Namespace(install.OpenShift)
	for _, key := range []string{ // the ClusterServiceVersion replaces these
		"Deployment " + own, "ServiceAccount " + own, "Role " + own, "RoleBinding " + own, "ClusterRole ", "ClusterRoleBinding ",
	} {
		places[key+"/"+install.ServiceAccount]++
	}
	for _, o := range objects {
		must.Equal(t, "places of "+id(o), places[id(o)], 1)
		delete(places, id(o))
	}
	if len(places) > 0 {
		t.Errorf("objects that the manifests do not have: %v", places)
	}
}

// OLM must offer the operator only to the versions that the README names.
func TestBundleIsForTheVersionsThatAreSupported(t *testing.T) {
	readme := disk.Read(t, "../../../README.md")
	files, _ := made(t)
	for product, want := range map[string]map[string]string{
		"Kubernetes": {"bundle/manifests/kms-health-operator.clusterserviceversion.yaml": "minKubeVersion: %s.0"},
		"OpenShift": {"bundle/metadata/annotations.yaml": "com.redhat.openshift.versions: v%s",
			"bundle.Dockerfile": "com.redhat.openshift.versions=v%s"},
	} {
		first := regexp.MustCompile(`\*\*` + product + `\*\* ([0-9.]+) or later`).FindSubmatch(readme)
		if first == nil {
			t.Fatalf("the README has no version of %s", product)
		}
		for file, line := range want {
			if line = fmt.Sprintf(line, first[1]); !strings.Contains(string(files[file]), line) {
				t.Errorf("%s has no %q", file, line)
			}
		}
	}
}
