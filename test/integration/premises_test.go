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

// Each apply to a list that is atomic removes the conditions of all others, so a first one shows
// that, and no other follows until the configuration names another destination.
func TestDestinationWithAnAtomicListOfConditionsIsWrittenOnce(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "atomic.example.com", Version: "v1alpha1", Resource: "kmshealths"}
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, "kmshealth.openshift.io", gvr.Group, listOfConditions, "")); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, "")
	r := reportingTo(t)
	r.configureObject("group: atomic.example.com, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere)
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
	gvr.Group = "maps.example.com"
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, "kmshealth.openshift.io", gvr.Group)); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, "")
	r.configureObject("group: maps.example.com, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere)
	r.reportsTo(gvr, "")
}

// kube-apiserver has the same answer for it as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "nostatus.example.com", Version: "v1alpha1", Resource: "kmshealths"}
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, "kmshealth.openshift.io", gvr.Group, subresources, "")); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, "")
	r := reportingTo(t)
	r.configureObject("group: nostatus.example.com, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere)
	r.start()
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
