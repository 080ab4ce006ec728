package monitoring

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/test/manifests/install"
)

// The component for a plain control plane has the alerts and the dashboard of OpenShift,
// in its own namespace.
func TestComponentForAPlainControlPlane(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	find := func(overlay, kind, name string, components ...string) *unstructured.Unstructured {
		t.Helper()
		objects, err := install.Render(t.Context(), overlay, components...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() == kind && o.GetName() == name {
				return o
			}
		}
		t.Fatalf("%s: no %s %s", overlay, kind, name)
		return nil
	}
	theirs := find(install.OpenShift, "PrometheusRule", "kms-health-operator")
	ours := find(install.Kubernetes, "PrometheusRule", "kms-health-operator", "monitoring")
	if ours.GetNamespace() != install.Namespace(install.Kubernetes) || theirs.GetNamespace() != install.Namespace(install.OpenShift) {
		t.Errorf("in namespaces %s and %s", ours.GetNamespace(), theirs.GetNamespace())
	}
	// The namespace of the alert on an absent operator is the only difference.
	raw, err := json.Marshal(theirs.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	label := `"namespace":"` + install.Namespace(install.OpenShift) + `"`
	if n := strings.Count(string(raw), label); n != 1 {
		t.Errorf("%d alerts have the label %s", n, label)
	}
	var want any
	if err := json.Unmarshal([]byte(strings.Replace(string(raw), label, `"namespace":"`+install.Namespace(install.Kubernetes)+`"`, 1)), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours.Object["spec"], want) {
		t.Errorf("other alerts: %v, want %v", ours.Object["spec"], want)
	}
	_, dashboard := readDashboard(t)
	for overlay, components := range map[string][]string{install.OpenShift: nil, install.Kubernetes: {"monitoring"}} {
		o := find(overlay, "ConfigMap", "kms-health-dashboard", components...)
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		if data["kms-health.json"] != string(dashboard) {
			t.Errorf("%s: another dashboard", overlay)
		}
	}
	monitor, service := find(install.Kubernetes, "ServiceMonitor", "kms-health-operator", "monitoring"), find(install.Kubernetes, "Service", "kms-health-operator")
	selector, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for name, value := range selector {
		if service.GetLabels()[name] != value {
			t.Errorf("the ServiceMonitor does not select the Service: %v, %v", selector, service.GetLabels())
		}
	}
}
