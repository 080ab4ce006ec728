package reportercontroller

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		if !reflect.DeepEqual(normalized(live.Object["spec"]), normalized(wanted.Object["spec"])) {
			return fmt.Sprintf("%s %s does not match the running operator, version %s: apply the manifests of that version, "+
				"or start the new operator", live.GetKind(), live.GetName(), version.Version)
		}
	}
	return ""
}

// normalized returns a value with reduced white space in its texts: YAML tools fold long lines differently.
func normalized(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Join(strings.Fields(v), " ")
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = normalized(v[i])
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name := range v {
			all[name] = normalized(v[name])
		}
		return all
	default:
		return value
	}
}
