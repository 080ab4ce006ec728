//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
)

const subresources = `    subresources:
      status: {}
`

const listOfConditions = `                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
`

// another installs the CRD of KMSHealth in another group, with parts replaced, and creates an
// object, which it returns as a destination too.
func another(t *testing.T, group string, replace ...string) (gvr schema.GroupVersionResource, destination string) {
	t.Helper()
	gvr = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "kmshealths"}
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, append([]string{"kmshealth.openshift.io", group}, replace...)...)); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, "")
	return gvr, "group: " + group + ", version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere
}

// Each apply to a list that is atomic removes the conditions of all others, so a first one shows
// that, and no other follows until the configuration names another destination.
func TestDestinationWithAnAtomicListOfConditionsIsWrittenOnce(t *testing.T) {
	gvr, destination := another(t, "atomic.example.com", listOfConditions, "")
	r := reportingTo(t)
	r.configureObject(destination)
	r.start()
	r.writes("atomic_list")
	r.logged("Failed to write reports", "x-kubernetes-list-type: map")
	u, err := administrator(t).Resource(gvr).Get(soon(t), anywhere, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written := conditionIn(u, contract.ConditionType(r.node))
	if written == nil {
		t.Fatalf("there is no condition: %v", u.Object["status"])
	}
	time.Sleep(5 * time.Second) // some intervals
	again, err := administrator(t).Resource(gvr).Get(soon(t), anywhere, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.GetResourceVersion() != u.GetResourceVersion() {
		t.Errorf("it was written again: %v", again.Object["status"])
	}
	if _, view := r.get("/healthz?verbose"); !strings.Contains(view, "[-]write failed") || !strings.Contains(view, "x-kubernetes-list-type: map") {
		t.Errorf("/healthz?verbose: %s", view)
	}
	gvr, destination = another(t, "maps.example.com")
	r.configureObject(destination)
	r.reportsTo(gvr, "")
}

// kube-apiserver has the same answer for it as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	_, destination := another(t, "nostatus.example.com", subresources, "")
	r := reportingTo(t)
	r.configureObject(destination)
	r.start()
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
