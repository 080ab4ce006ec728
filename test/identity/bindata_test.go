//go:build integration

package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/bindata"
	"github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/contract"
)

// documents renders a file of bindata as the operator does.
func documents(t *testing.T, file string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	asJSON := func(v any) (string, error) {
		raw, err := json.Marshal(v)
		return string(raw), err
	}
	parsed, err := template.New(file).Funcs(template.FuncMap{"json": asJSON}).Option("missingkey=error").ParseFS(bindata.Files, file)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, values); err != nil {
		t.Fatal(err)
	}
	return decode(t, text.Bytes())
}

// policy is the reporters' policy and its binding.
func policy(t *testing.T) []*unstructured.Unstructured { return decode(t, manifests.ReporterPolicy) }

func decode(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var list []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, u)
	}
}

// paths are where the kinds of bindata's files are served.
var paths = map[string]string{
	"ServiceAccount":                   "/api/v1/namespaces/%s/serviceaccounts/",
	"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles/",
	"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/",
}

// applyAll is how the operator writes: Server-Side Apply, strict, so that a
// misspelt field is an error.
func applyAll(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	admin := asAdmin(t)
	for _, u := range objects {
		path := expand(paths[u.GetKind()], u.GetNamespace()) + u.GetName() + "?force=true&fieldManager=kms-health-operator&fieldValidation=Strict"
		body, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if got := admin.do(t, request{http.MethodPatch, path, applyType, string(body)}); got.code/100 != 2 {
			t.Fatalf("apply %s %s: %d %s", u.GetKind(), u.GetName(), got.code, got.message)
		}
	}
}

// identityValues are those of the operator's renderer, where the pods' owner brings the
// credentials: the identity with the most subjects.
func identityValues(name, resource string) map[string]any {
	return map[string]any{
		"Target": name, "Destination": contract.ResourceFor(resource, name), "Namespace": home, "ServiceAccount": "kms-health-reporter-" + name,
		"OwnersCredentials": true, "OpenShift": false,
	}
}
