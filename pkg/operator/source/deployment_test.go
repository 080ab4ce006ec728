package source

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestInjectedContainerIsTheOneWhoseKeyTheOperatorOwns(t *testing.T) {
	const container = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"kms-health\"}":{".":{},` +
		`"f:name":{}}}}}}}`
	const another = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"apiserver\"}":{"f:image":{}}}}}}}`
	const annotation = `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{` +
		`"f:kmshealth.openshift.io/pod-hash":{}}}}}}`
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for name, c := range map[string]struct {
		entries                []metav1.ManagedFieldsEntry
		injected, hasContainer bool
	}{
		"nothing":               {nil, false, false},
		"the owner's container": {[]metav1.ManagedFieldsEntry{entry("owner", container)}, false, false},
		"the container":         {[]metav1.ManagedFieldsEntry{entry("owner", another), entry("us", container)}, true, true},
		"the annotation alone": {
			[]metav1.ManagedFieldsEntry{entry("us", annotation), entry("owner", container)}, true, false,
		},
		"another container": {[]metav1.ManagedFieldsEntry{entry("us", another)}, true, false},
		"two entries":       {[]metav1.ManagedFieldsEntry{entry("us", container), entry("us", annotation)}, true, true},
		"no fields":         {[]metav1.ManagedFieldsEntry{{Manager: "us"}}, true, false},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
		o.SetManagedFields(c.entries)
		s := &Target{options: TargetOptions{Manager: "us"}}
		if d := s.readDeployment(o); d.Injected != c.injected || d.HasContainer != c.hasContainer {
			t.Errorf("%s: injected %t, has the container %t", name, d.Injected, d.HasContainer)
		}
	}
}
