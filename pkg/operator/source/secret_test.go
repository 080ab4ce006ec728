package source

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// They date the data of the Secret (package encryption).
func TestSecretHasItsManagedFields(t *testing.T) {
	o := &unstructured.Unstructured{
		Object: map[string]any{"kind": "Secret", "apiVersion": "v1", "data": map[string]any{"k": "eA=="}},
	}
	o.SetManagedFields(
		[]metav1.ManagedFieldsEntry{{Manager: "m", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	)
	if s := Secret(o); string(s.Data["k"]) != "x" || len(s.ManagedFields) != 1 {
		t.Errorf("%+v", s)
	}
}
