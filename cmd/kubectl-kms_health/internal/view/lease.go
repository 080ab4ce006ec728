package view

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Lease is the state of an operator's lease.
type Lease struct {
	Namespace string
	Renewed   time.Time
	// Until is when it ran out, or will.
	Until time.Time
}

// ReadLease decodes a Lease. Not ok: nobody has it.
func ReadLease(o *unstructured.Unstructured) (lease Lease, ok bool) {
	text, _, _ := unstructured.NestedString(o.Object, "spec", "renewTime")
	seconds, _, _ := unstructured.NestedInt64(o.Object, "spec", "leaseDurationSeconds")
	renewed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Lease{}, false
	}
	return Lease{o.GetNamespace(), renewed, renewed.Add(time.Duration(seconds) * time.Second)}, true
}
