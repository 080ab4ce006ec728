package reportercontroller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/version"
)

func TestPolicyIsActiveOnlyAsThisVersionHasIt(t *testing.T) {
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, path...) }
	}
	// During an upgrade the new manifests may be applied while the old operator still runs.
	differs := "does not match the running operator, version " + version.Version + ": apply the manifests of that " +
		"version, or start the new operator"
	type change = func(*unstructured.Unstructured)
	for name, c := range map[string]struct {
		policy, binding change
		want            string // a part of the problem; empty: none
	}{
		"as installed": {nil, nil, ""},
		"with the defaults of the API server": {func(o *unstructured.Unstructured) {
			set("Equivalent", "spec", "matchConstraints", "matchPolicy")(o)
			set(map[string]any{}, "spec", "matchConstraints", "namespaceSelector")(o)
			set(map[string]any{}, "spec", "matchConstraints", "objectSelector")(o)
			set(int64(1), "metadata", "generation")(o)
		}, nil, ""},
		"a policy with another default":      {set("Exact", "spec", "matchConstraints", "matchPolicy"), nil, differs},
		"a policy that ignores its failures": {set("Ignore", "spec", "failurePolicy"), nil, differs},
		"a policy without validations":       {set([]any{}, "spec", "validations"), nil, differs},
		"a policy with another condition":    {set([]any{}, "spec", "matchConditions"), nil, differs},
		"a policy with another variable":     {set([]any{}, "spec", "variables"), nil, differs},
		"a binding that only audits":         {nil, set([]any{"Audit"}, "spec", "validationActions"), differs},
		"a binding of another policy":        {nil, set("other", "spec", "policyName"), differs},
	} {
		got, all := "", objects.Policy()
		for i, change := range []change{c.policy, c.binding} {
			if change != nil {
				change(all[i])
			}
			got += checkPolicy(all[i])
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}
