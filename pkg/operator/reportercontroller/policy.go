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

// policyProblem is why a part of the reporters' admission policy is not active: it
// bounds what they may write, so none is given a right before. Empty: it is.
func policyProblem(kind string, part *informers.Informer[string]) string {
	problem, exists := part.Get("", objects.PolicyName)
	if !exists {
		return fmt.Sprintf("%s %s does not exist: apply the manifests", kind, objects.PolicyName)
	}
	return problem
}

// checkPolicy is why a policy or binding that exists is not the one of this version.
// Empty: it is.
func checkPolicy(live *unstructured.Unstructured) string {
	for _, wanted := range ofKind(objects.Policy(), live.GetKind()) {
		if !reflect.DeepEqual(normalized(live.Object["spec"]), normalized(wanted.Object["spec"])) {
			return fmt.Sprintf("%s %s is not the one of %s, the operator that runs: apply its manifests, or start the new "+
				"operator", live.GetKind(), live.GetName(), version.Version)
		}
	}
	return ""
}

// normalized is a value with the white space of its texts reduced: tools for YAML fold long lines differently.
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
