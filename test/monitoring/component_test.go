package monitoring

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// The component for a plain control plane has the alerts of OpenShift, in its own namespace.
func TestComponentForAPlainControlPlane(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	find := func(overlay, kind, name string, components ...string) *unstructured.Unstructured {
		t.Helper()
		objects, err := install.Render(t.Context(), overlay, components...)
		must.Succeed(t, err)
		for _, o := range objects {
			if o.GetKind() == kind && o.GetName() == name {
				return o
			}
		}
		t.Fatalf("%s: no %s %s", overlay, kind, name)
		return nil
	}
	// The namespace of the alert on an absent operator is the only difference.
	rules := map[string]string{}
	for overlay, components := range map[string][]string{install.OpenShift: nil, install.Kubernetes: {"monitoring"}} {
		o, namespace := find(overlay, "PrometheusRule", "kms-health-operator", components...), install.Namespace(overlay)
		raw, err := json.Marshal(o.Object["spec"])
		if err != nil || o.GetNamespace() != namespace {
			t.Errorf("%s: in namespace %s, %v", overlay, o.GetNamespace(), err)
		}
		rules[overlay] = strings.Replace(string(raw), `"namespace":"`+namespace+`"`, "", 1)
	}
	must.Equal(t, "alerts", rules[install.Kubernetes], rules[install.OpenShift])
	monitor, service := find(install.Kubernetes, "ServiceMonitor", "kms-health-operator", "monitoring"), find(install.Kubernetes, "Service", "kms-health-operator")
	selector, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for name, value := range selector {
		must.Equal(t, "label "+name+" of the Service that the ServiceMonitor selects", service.GetLabels()[name], value)
	}
}
