package contract

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestObjectIsNamedTheSameInEveryPlace(t *testing.T) {
	for _, tt := range []struct {
		resource         Resource
		path, body, name string
	}{
		{
			ResourceFor("kubeapiservers", "api"), "apis/operator.openshift.io/v1/kubeapiservers/cluster/status",
			`{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"},` +
				`"status":{"conditions":null}}`, "kubeapiservers.operator.openshift.io/cluster",
		},
		{
			ResourceFor("kmshealths", "api"), "apis/kmshealth.openshift.io/v1alpha1/kmshealths/api/status",
			`{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"KMSHealth","metadata":{"name":"api"},` +
				`"status":{"conditions":null}}`, "kmshealths.kmshealth.openshift.io/api",
		},
	} {
		body, err := json.Marshal(tt.resource.WithStatus(map[string]any{"conditions": nil}))
		if err != nil {
			t.Fatal(err)
		}
		if path := strings.Join(tt.resource.StatusPath(), "/"); path != tt.path || string(body) != tt.body ||
			tt.resource.String() != tt.name {
			t.Errorf("%s\n%s\n%s", path, body, tt.resource)
		}
		if _, has := tt.resource.WithStatus(nil)["status"]; has {
			t.Errorf("%s: a status without a field is applied", tt.resource)
		}
	}
}
