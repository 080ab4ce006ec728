package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/manifests/install"
)

// made are the files, and the objects that they are made of.
func made(t *testing.T) (map[string][]byte, []*unstructured.Unstructured) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	rendered, err := install.Manifests{Images: map[string]string{
		"registry.invalid/kms-health-operator": operator, "registry.invalid/kms-health-reporter": reporter,
	}}.YAML(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	files, err := makeBundle(rendered, "1.2.3", "1970-01-01T00:00:00Z", []string{"amd64"})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// OLM drops the namespace of an object in a bundle, and ignores or rejects kinds that it does not
// know, so an object in the wrong place is lost.
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
	for _, key := range []string{ // the ClusterServiceVersion stands for these
		"Deployment " + own, "ServiceAccount " + own, "Role " + own, "RoleBinding " + own, "ClusterRole ", "ClusterRoleBinding ",
	} {
		places[key+"/"+install.ServiceAccount]++
	}
	for _, o := range objects {
		if places[id(o)] != 1 {
			t.Errorf("%s is in %d places", id(o), places[id(o)])
		}
		delete(places, id(o))
	}
	if len(places) > 0 {
		t.Errorf("objects that the manifests do not have: %v", places)
	}
}

// In each other mode OLM gives the operator's rights in its own namespace in others too.
func TestTheServiceVersionHasTheRightsOfTheManifests(t *testing.T) {
	files, objects := made(t)
	var csv struct {
		Spec struct {
			Version      string
			InstallModes []struct {
				Type      string
				Supported bool
			}
			Install struct {
				Spec struct {
					ClusterPermissions, Permissions []struct {
						ServiceAccountName string
						Rules              []any
					}
				}
			}
		}
	}
	raw := files["bundle/manifests/"+install.ServiceAccount+".clusterserviceversion.yaml"]
	if err := yaml.Unmarshal(raw, &csv); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetName() != install.ServiceAccount || o.GetNamespace() != "" && o.GetNamespace() != install.Namespace(install.OpenShift) {
			continue
		}
		rules := csv.Spec.Install.Spec.Permissions
		switch o.GetKind() {
		case "ClusterRole":
			rules = csv.Spec.Install.Spec.ClusterPermissions
		case "Role":
		default:
			continue
		}
		if len(rules) != 1 || rules[0].ServiceAccountName != install.ServiceAccount || fmt.Sprint(rules[0].Rules) != fmt.Sprint(o.Object["rules"]) {
			t.Errorf("%s: the ClusterServiceVersion has the rights %v", id(o), rules)
		}
	}
	for _, m := range csv.Spec.InstallModes {
		if m.Supported != (m.Type == "OwnNamespace") {
			t.Errorf("install mode %s: %t", m.Type, m.Supported)
		}
	}
	text := string(raw)
	if strings.Contains(text, "registry.invalid") || strings.Count(text, reporter) != 2 || strings.Count(text, operator) != 3 {
		t.Error("an image is not that of the release")
	}
}
