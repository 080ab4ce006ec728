//go:build !integration

package manifests

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
)

// schema is a JSON schema, or a part of one.
type schema = map[string]any

// writeSchemas writes a schema for each kind of Kubernetes, and for those of the CRDs that the
// manifests need, into a folder: from the modules that tests have anyway, so nothing is fetched
// that go.sum does not have.
func writeSchemas(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	kubernetes, prometheus := moduleDir(t, "cluster", "k8s.io/kubernetes"), moduleDir(t, "kubeconform", "github.com/prometheus-operator/prometheus-operator")
	openshift, err := controlplane.OpenShiftAPIDir()
	if err != nil {
		t.Fatal(err)
	}
	var objectMeta schema
	for _, path := range glob(t, kubernetes, "api/openapi-spec/v3/api*__v1_openapi.json") {
		var document struct {
			Components struct{ Schemas map[string]schema }
		}
		readYAML(t, path, &document)
		for _, s := range document.Components.Schemas {
			closed(s)
		}
		components := schema{"schemas": document.Components.Schemas}
		if objectMeta == nil {
			objectMeta = components
		}
		for name, s := range document.Components.Schemas {
			kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
			if len(kinds) != 1 { // those of several groups are no objects
				continue
			}
			kind := kinds[0].(schema)
			group, version := kind["group"].(string), kind["version"].(string)
			if group == "" {
				group = version
			}
			write(t, folder, group, version, kind["kind"].(string), schema{"$ref": "#/components/schemas/" + name, "components": components})
		}
	}
	for _, path := range slices.Concat(
		glob(t, root, "kubernetes/crd.yaml"),
		glob(t, openshift, "config/v1/zz_generated.crd-manifests/*_clusteroperators.crd.yaml"),
		glob(t, openshift, "security/v1/zz_generated.crd-manifests/*_securitycontextconstraints.crd.yaml"),
		glob(t, prometheus, "example/prometheus-operator-crd/*_servicemonitors.yaml"),
		glob(t, prometheus, "example/prometheus-operator-crd/*_prometheusrules.yaml"),
	) {
		var crd apiextensionsv1.CustomResourceDefinition
		readYAML(t, path, &crd)
		for _, v := range crd.Spec.Versions {
			raw, err := json.Marshal(v.Schema.OpenAPIV3Schema)
			if err != nil {
				t.Fatal(err)
			}
			var s schema
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			properties := s["properties"].(schema)
			maps.Copy(properties, schema{"apiVersion": schema{"type": "string"}, "kind": schema{"type": "string"}})
			properties["metadata"] = schema{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
			closed(s)
			s["components"] = objectMeta
			write(t, folder, crd.Spec.Group, v.Name, crd.Spec.Names.Kind, s)
		}
	}
	return folder
}

// closed makes a schema of OpenAPI one of JSON that allows no properties but those that it has, at
// any depth.
func closed(s schema) {
	properties, _ := s["properties"].(schema)
	for _, p := range properties {
		closed(p.(schema))
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if inner, ok := s[of].(schema); ok {
			closed(inner)
		}
	}
	if _, open := s["additionalProperties"]; len(properties) > 0 && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	if s["nullable"] == true {
		s["type"] = []any{s["type"], "null"}
	}
}

func moduleDir(t *testing.T, tools, module string) string {
	t.Helper()
	dir, err := program.ModuleDir(tools, module)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func glob(t *testing.T, folder, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no %s: %v", folder, pattern, err)
	}
	return paths
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func write(t *testing.T, folder, group, version, kind string, s schema) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, group+"_"+version+"_"+strings.ToLower(kind)+".json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
