package target

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
)

// Resource is what matters here of an operator resource.
type Resource struct {
	// Condition is the operator's own.
	Condition *Condition
	// Since is when the present reporter of a node first wrote, by node.
	Since map[string]time.Time
	// Foreign is a field manager, not ours, that writes typed reports, and when
	// it last did.
	Foreign     string
	ForeignTime time.Time
}

// Condition as it stands in a status.
type Condition struct {
	Status, Reason, Message, LastTransitionTime string
}

var kindOf = map[v1alpha1.Resource]string{
	v1alpha1.ResourceKubeAPIServers:      "KubeAPIServer",
	v1alpha1.ResourceOpenShiftAPIServers: "OpenShiftAPIServer",
	v1alpha1.ResourceAuthentications:     "Authentication",
}

// ResourceOf is an operator resource's place in the API.
func ResourceOf(r v1alpha1.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "operator.openshift.io", Version: "v1", Resource: string(r)}
}

// ReadResource keeps what matters of an operator resource.
func ReadResource(o *unstructured.Unstructured) Resource {
	r := Resource{Since: map[string]time.Time{}}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string { s, _ := c[name].(string); return s }
		if text("type") == ConditionType {
			r.Condition = &Condition{text("status"), text("reason"), text("message"), text("lastTransitionTime")}
		}
		if node, ok := health.NodeOf(text("type")); ok {
			if at, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
				r.Since[node] = at
			}
		}
	}
	for _, m := range o.GetManagedFields() {
		if m.Time == nil || m.FieldsV1 == nil || strings.HasPrefix(m.Manager, "kms-health-") || !strings.Contains(m.FieldsV1.GetRawString(), `"f:healthReports"`) {
			continue
		}
		if m.Time.After(r.ForeignTime) {
			r.Foreign, r.ForeignTime = m.Manager, m.Time.Time
		}
	}
	return r
}
