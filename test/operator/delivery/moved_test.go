//go:build integration

package delivery

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// grantMoved gives the operator the same rights for openshift-apiserver in oauth-apiserver's namespace as in the
// API server's namespace. docs/reference/manifests.md requires this of an administrator who moves an API server. The
// policy on the reporters' rights allows one name in each namespace of OpenShift.
func grantMoved(t *testing.T) {
	t.Helper()
	objects, err := install.Render(t.Context(), install.OpenShift, fixture.Components...)
	must.Succeed(t, err)
	from, to := apiservers.OpenShift.Namespace, apiservers.OAuth.Namespace
	var more []*unstructured.Unstructured
	for _, o := range objects {
		switch {
		case (o.GetKind() == "Role" || o.GetKind() == "RoleBinding") && o.GetNamespace() == from:
			o.SetNamespace(to)
			if name := o.GetName(); !strings.Contains(name, from) {
				o.SetName("moved-" + name)
				if o.GetKind() == "RoleBinding" {
					_ = unstructured.SetNestedField(o.Object, "moved-"+name, "roleRef", "name")
				}
			}
			more = append(more, o)
		case o.GetKind() == "ValidatingAdmissionPolicy" && o.GetName() == "kms-health-reporter-rights":
			more = append(more, allowing(t, o, from, to))
		case o.GetKind() == "ClusterRole" && strings.HasPrefix(o.GetName(), "kms-health-"):
			rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
			changed := false
			for _, r := range rules {
				rule := r.(map[string]any)
				names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
				for _, n := range names {
					if moved, ok := strings.CutSuffix(n, "."+from); ok {
						names, changed = append(names, moved+"."+to), true
					}
				}
				if len(names) > 0 {
					_ = unstructured.SetNestedStringSlice(rule, names, "resourceNames")
				}
			}
			_ = unstructured.SetNestedSlice(o.Object, rules, "rules")
			if changed {
				more = append(more, o)
			}
		}
	}
	must.Succeed(t, install.Objects(t.Context(), fixture.Cluster.RESTConfig(), more...))
}

// allowing returns the policy with the reporter of one namespace also allowed in another.
func allowing(t *testing.T, policy *unstructured.Unstructured, from, to string) *unstructured.Unstructured {
	t.Helper()
	raw, err := policy.MarshalJSON()
	must.Succeed(t, err)
	name := "/" + contract.ReporterName(apiservers.OpenShift.Name) + "'"
	text := strings.Replace(string(raw), "'"+from+name, "'"+from+name+", '"+to+name, 1)
	if err := policy.UnmarshalJSON([]byte(text)); err != nil || text == string(raw) {
		t.Fatal("the policy does not have the reporter: ", err)
	}
	return policy
}

// openShiftIn returns a configuration with openshift-apiserver in this namespace.
func openShiftIn(namespace string) string {
	return fixture.Targets(fmt.Sprintf("- {resource: %s, namespace: %s, podSelector: {apiserver: \"true\"}, container: %s, mode: Sidecar}\n",
		apiservers.OpenShift.Resource, namespace, apiservers.OpenShift.Name))
}

// An operator that starts after the edit knows the earlier objects only from its recorded state. The earlier operator
// had not been able to read the plugins.
func TestTargetEditedWhileNoOperatorRunsLeavesNothingBehind(t *testing.T) {
	grantMoved(t)
	moved := apiservers.OpenShift
	moved.Namespace = apiservers.OAuth.Namespace
	op := fixture.NewOperator(t)
	fixture.RemoveEncryption(t, apiservers.OpenShift)
	fixture.RemoveEncryption(t, apiservers.OAuth)
	fixture.SetEncryption(t, apiservers.OpenShift, "not: an EncryptionConfiguration")
	fixture.SetEncryption(t, apiservers.OAuth, apiservers.Encryption("identity"))
	op.Start(openShiftIn(apiservers.OpenShift.Namespace))
	fixture.AwaitRollUp(t, apiservers.OpenShift, contract.HealthReporting, "False", "EncryptionConfigUnreadable")
	op.Kill(syscall.SIGKILL)
	op.Start(openShiftIn(moved.Namespace))
	awaitObjects(t, "where the target is now", idle(moved, apiservers.EncryptionSecret)...)
	fixture.AwaitEqual(t, "no report and no condition is left on the operator resource", 0, func() int {
		r := fixture.Resource(t, apiservers.OpenShift)
		return len(r.Reports) + len(r.Conditions)
	})
	op.RemoveAll()
	fixture.RemoveEncryption(t, apiservers.OpenShift)
}
