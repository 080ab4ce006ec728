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
	for name, c := range map[string]struct {
		policy, binding func(*unstructured.Unstructured)
		want            string // a part of the problem; empty: none
	}{
		"as installed": {},
		"with the defaults of the API server": {
			policy: func(o *unstructured.Unstructured) {
				set("Equivalent", "spec", "matchConstraints", "matchPolicy")(o)
				set(map[string]any{}, "spec", "matchConstraints", "namespaceSelector")(o)
				set(map[string]any{}, "spec", "matchConstraints", "objectSelector")(o)
				set(int64(1), "metadata", "generation")(o)
			},
		},
		"a policy with another default":      {policy: set("Exact", "spec", "matchConstraints", "matchPolicy"), want: differs},
		"a policy that ignores its failures": {policy: set("Ignore", "spec", "failurePolicy"), want: differs},
		"a policy without validations": {
			policy: func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "validations") },
			want:   differs,
		},
		"a policy with another condition": {policy: set([]any{}, "spec", "matchConditions"), want: differs},
		"a policy with another variable":  {policy: set([]any{}, "spec", "variables"), want: differs},
		"a binding that only audits": {binding: set([]any{"Audit"}, "spec", "validationActions"),
			want: differs},
		"a binding of another policy": {binding: set("other", "spec", "policyName"), want: differs},
	} {
		t.Run(name, func(t *testing.T) {
			got, all := "", objects.Policy()
			if len(all) != 2 {
				t.Fatal(all)
			}
			for _, o := range all {
				change := c.policy
				if o.GetKind() != "ValidatingAdmissionPolicy" {
					change = c.binding
				}
				if change != nil {
					change(o)
				}
				got += checkPolicy(o)
			}
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q in it", got, c.want)
			}
		})
	}
}
