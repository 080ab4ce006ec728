package informers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Failure is why a pod, or a pod of a DaemonSet, does not start, as an Event of Kubernetes has it.
type Failure struct {
	Event   string // its name
	Of      types.UID
	Message string
}

// LastFailures returns the last message for each object. Events of one object are named in the order of their making.
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

// readFailure keeps nothing of an Event with another reason.
func readFailure(o *unstructured.Unstructured) Failure {
	e := As[corev1.Event](o)
	if e.Reason != "FailedMount" && e.Reason != "FailedCreate" {
		return Failure{}
	}
	return Failure{e.Name, e.InvolvedObject.UID, e.Message}
}
