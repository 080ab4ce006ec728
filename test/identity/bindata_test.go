//go:build integration

package identity

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/must"
)

// paths are the API paths of the kinds that the tests write.
var paths = map[string]string{
	"ServiceAccount":                   "/api/v1/namespaces/%s/serviceaccounts/",
	"Role":                             "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles/",
	"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles/",
	"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/",
	"Pod":                              "/api/v1/namespaces/%s/pods/",
	"ConfigMap":                        "/api/v1/namespaces/%s/configmaps/",
	"Secret":                           "/api/v1/namespaces/%s/secrets/",
	"Deployment":                       "/apis/apps/v1/namespaces/%s/deployments/",
	"KMSHealth":                        "/apis/kmshealth.openshift.io/v1alpha1/kmshealths/",
}

// applyAll writes by Server-Side Apply, as the operator does. Strict validation makes a misspelt field an error.
func applyAll(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	admin := asAdmin(t)
	for _, u := range objects {
		path := expand(paths[u.GetKind()], u.GetNamespace()) + u.GetName() + "?force=true&fieldManager=kms-health-operator&fieldValidation=Strict"
		body, err := u.MarshalJSON()
		must.Succeed(t, err)
		if got := admin.do(t, request{http.MethodPatch, path, applyType, string(body)}); got.code/100 != 2 {
			t.Fatalf("apply %s %s: %d %s", u.GetKind(), u.GetName(), got.code, got.message)
		}
	}
}

// identity returns the RBAC objects for the reporters of a resource. It uses mode Sidecar, which has the most subjects.
func identity(s operatorResource) []*unstructured.Unstructured {
	in := objects.Input{Namespace: home, Target: &v1alpha1.APIServer{
		Name: target, Namespace: home, Resource: v1alpha1.Resource(s.resource), Mode: v1alpha1.ModeSidecar,
	}}
	return in.Identity()
}
