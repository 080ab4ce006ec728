package informers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
)

func TestInjectedContainerIsTheOneWhoseKeyTheOperatorOwns(t *testing.T) {
	const container = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"kms-health\"}":{".":{},` +
		`"f:name":{}}}}}}}`
	const another = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"apiserver\"}":{"f:image":{}}}}}}}`
	const annotation = `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{` +
		`"f:kmshealth.openshift.io/pod-hash":{}}}}}}`
	const operator = contract.OperatorName
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	type fields = []metav1.ManagedFieldsEntry
	for name, c := range map[string]struct {
		entries                fields
		injected, hasContainer bool
	}{
		"nothing":               {nil, false, false},
		"the owner's container": {fields{entry("owner", container)}, false, false},
		"the container":         {fields{entry("owner", another), entry(operator, container)}, true, true},
		"the annotation alone":  {fields{entry(operator, annotation), entry("owner", container)}, true, false},
		"another container":     {fields{entry(operator, another)}, true, false},
		"two entries":           {fields{entry(operator, container), entry(operator, annotation)}, true, true},
		"no fields":             {fields{{Manager: operator}}, true, false},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
		o.SetManagedFields(c.entries)
		if d := readDeployment(o); d.Injected != c.injected || d.HasContainer != c.hasContainer {
			t.Errorf("%s: injected %t, has the container %t", name, d.Injected, d.HasContainer)
		}
	}
}
