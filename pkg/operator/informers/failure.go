package informers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Failure is why a pod, or a pod of a DaemonSet, does not start, from an Event of Kubernetes.
type Failure struct {
	Event   string // its name
	Of      types.UID
	Message string
}

// LastFailures returns the last message for each object. The names of an object's Events end in their creation time,
// so they sort by it.
func (c *Cluster) LastFailures() map[types.UID]string {
	all := c.Failures.List()
	slices.SortFunc(all, func(a, b Failure) int { return cmp.Compare(a.Event, b.Event) })
	last := map[types.UID]string{}
	for _, failure := range all {
		if failure.Message != "" {
			last[failure.Of] = failure.Message
		}
	}
	return last
}

// readFailure returns a zero Failure for an Event with another reason.
func readFailure(o *unstructured.Unstructured) Failure {
	e := As[corev1.Event](o)
	if e.Reason != "FailedMount" && e.Reason != "FailedCreate" {
		return Failure{}
	}
	return Failure{e.Name, e.InvolvedObject.UID, e.Message}
}
