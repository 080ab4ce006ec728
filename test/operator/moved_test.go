//go:build integration

package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// grantMoved gives the operator, for openshift-apiserver's target in oauth-apiserver's
// namespace, the rights that it has in its own: what docs/install.md asks of an
// administrator who moves a target.
func grantMoved(t *testing.T) {
	t.Helper()
	objects, err := install.Render(t.Context(), cluster.RESTConfig().CAData, install.OpenShift, components...)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := install.Objects(t.Context(), cluster.RESTConfig(), more...); err != nil {
		t.Fatal(err)
	}
}

// A target whose namespace or resource is edited in place leaves nothing where it was.
func TestTargetEditedInPlaceLeavesNothingBehind(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, old, moved := apiservers.OpenShift, apiservers.OpenShift.Namespace, apiservers.OAuth.Namespace
	grantMoved(t)
	op := newOperator(t)
	for _, server := range []apiservers.Server{apiservers.OpenShift, apiservers.OAuth} {
		setEncryption(t, server, apiservers.Encryption("1", "identity"), "1")
		applyObject(t, apiservers.Deployments, server.Namespace, apiservers.Deployment("1"))
		awaitPods(t, server.Namespace, "apiserver=true", 3)
	}
	t.Cleanup(func() { removeDeployment(t); removeDeploymentIn(t, moved) })
	entry := func(namespace, resource, delivery string) string {
		return targets(fmt.Sprintf("- {name: %s, resource: %s, namespace: %s, podSelector: {apiserver: \"true\"}, container: %s, %s}\n",
			target.Name, resource, namespace, target.Name, delivery))
	}
	const deployment, external = "delivery: Deployment, deployment: apiserver", "delivery: External"
	there := func(server apiservers.Server, namespace, resource string, injected bool) []string {
		server.Namespace = namespace
		server.Name = target.Name
		want := base(server, namespace, config+" "+config+"-1",
			"Secret "+namespace+"/"+credential("mintedtoken")+": token",
			"ConfigMap "+namespace+"/"+setName(target, "1")+": 1W every 30s to "+resource)
		if injected {
			want = append(want, "Deployment "+namespace+"/apiserver: injected reporter:1, "+setName(target, "1"))
		}
		return want
	}
	clean := func(server apiservers.Server) {
		t.Helper()
		eventually(t, "nothing of it is left on "+server.Resource, func() error {
			r := resource(t, server)
			if len(r.Reports)+len(r.Conditions) > 0 {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
	report := func(server apiservers.Server) {
		t.Helper()
		for _, node := range nodeNames {
			reportStatus(t, server, node, health.Healthy)
		}
	}

	op.configure(entry(old, apiservers.OpenShift.Resource, deployment))
	op.start("")
	awaitObjects(t, "delivered", op.before, there(target, old, apiservers.OpenShift.Resource, true)...)
	awaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")
	report(apiservers.OpenShift)

	op.configure(entry(moved, apiservers.OpenShift.Resource, deployment))
	awaitObjects(t, "in another namespace", op.before, there(target, moved, apiservers.OpenShift.Resource, true)...)
	awaitCondition(t, apiservers.OpenShift.Resource, "True", "Configured")

	op.configure(entry(moved, apiservers.OAuth.Resource, deployment))
	awaitObjects(t, "on another operator resource", op.before, there(target, moved, apiservers.OAuth.Resource, true)...)
	awaitCondition(t, apiservers.OAuth.Resource, "True", "Configured")
	clean(apiservers.OpenShift)
	report(apiservers.OAuth)

	op.configure(entry(old, apiservers.OpenShift.Resource, external))
	awaitObjects(t, "both at once, and another delivery", op.before, there(target, old, apiservers.OpenShift.Resource, false)...)
	awaitCondition(t, apiservers.OpenShift.Resource, "False", "NoReporters") // its owner adds them
	clean(apiservers.OAuth)
	report(apiservers.OpenShift)
	time.Sleep(time.Second)
	op.configure("targets: []\n")
	op.awaitNothingLeft()
	clean(apiservers.OpenShift)
}
