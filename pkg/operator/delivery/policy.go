package delivery

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/operator/manifests"
)

// policyFields are those of an admission policy and of its binding that decide whom
// and what it denies.
var policyFields = []string{
	"failurePolicy", "matchConditions", "matchConstraints", "variables", "validations",
	"policyName", "validationActions", "matchResources", "paramKind", "paramRef",
}

// defaulted are fields of a match that the API server adds.
var defaulted = map[string]any{
	"matchPolicy": "Equivalent", "namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "scope": "*",
}

// wantedPolicy is the policy of this version and its binding, decoded once. Nothing
// changes them.
var wantedPolicy = sync.OnceValues(manifests.Policy)

// policyProblem is why the reporters' admission policy is not in force: it bounds what
// they may write, so none is given a right before. Empty: it is.
func policyProblem(policy, binding *unstructured.Unstructured) string {
	wanted, err := wantedPolicy()
	if err != nil {
		return err.Error()
	}
	for _, w := range wanted {
		live := policy
		if w.GetKind() != "ValidatingAdmissionPolicy" {
			live = binding
		}
		if live == nil {
			return fmt.Sprintf("%s %s does not exist: apply the manifests", w.GetKind(), w.GetName())
		}
		for _, field := range policyFields {
			is, _, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", field)
			should, _, _ := unstructured.NestedFieldNoCopy(w.Object, "spec", field)
			if !reflect.DeepEqual(normalized(is), normalized(should)) {
				return fmt.Sprintf("%s %s is not the one of this version (%s differs): apply the manifests", w.GetKind(), w.GetName(), field)
			}
		}
	}
	return ""
}

// normalized is a value without the defaults of the API server, and with the white
// space of its texts reduced: tools for YAML fold long lines differently.
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
			if usual, has := defaulted[name]; !has || !reflect.DeepEqual(usual, v[name]) {
				all[name] = normalized(v[name])
			}
		}
		return all
	default:
		return value
	}
}
