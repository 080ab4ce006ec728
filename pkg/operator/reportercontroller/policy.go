package reportercontroller

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/version"
)

// policyProblem returns why a part of the reporters' admission policy is not active; empty: it is active. The policy
// bounds what reporters may write, so no reporter gets a right before.
func policyProblem(kind string, part *informers.Informer[string]) string {
	problem, exists := part.Get("", objects.PolicyName)
	if !exists {
		return fmt.Sprintf("%s %s does not exist: apply the manifests", kind, objects.PolicyName)
	}
	return problem
}

// checkPolicy returns why an existing policy or binding is not the one of this version; empty: it is.
func checkPolicy(live *unstructured.Unstructured) string {
	for _, wanted := range ofKind(objects.Policy(), live.GetKind()) {
		if spec(live) != spec(wanted) {
			return fmt.Sprintf("%s %s does not match the running operator, version %s: apply the manifests of that version, "+
				"or start the new operator", live.GetKind(), live.GetName(), version.Version)
		}
	}
	return ""
}

// spec returns the spec of an object as JSON without white space: YAML tools fold long lines differently.
func spec(o *unstructured.Unstructured) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(contract.Marshal(o.Object["spec"]), `\n`, " ")), "")
}
