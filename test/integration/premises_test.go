//go:build integration

package integration

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const subresources = `    subresources:
      status: {}
`

// kube-apiserver has the same answer for it as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "nostatus.example.com", Version: "v1alpha1", Resource: "kmshealths"}
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, "kmshealth.openshift.io", gvr.Group, subresources, "")); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, "KMSHealth", "")
	r := reportingTo(t)
	r.configureObject("group: nostatus.example.com, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere)
	r.start()
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
