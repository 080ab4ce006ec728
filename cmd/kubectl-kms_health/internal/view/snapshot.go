package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Snapshot is what was read from a cluster, or from files. All of it is untrusted.
type Snapshot struct {
	Now time.Time // of the evaluation; for files when they were taken
	// Began is when a must-gather began, which reads one resource minutes after another; zero: all were read at Now.
	Began time.Time
	// Objects are the resources with reports, the operator's objects, and pods.
	Objects   []*unstructured.Unstructured
	Namespace string // that the operator should be in; empty: one of the manifests'
	// OperatorUnread means that the operator's Deployment or Lease may exist and not be in Objects.
	OperatorUnread bool
	Problems       []error // why resources or files with reports could not be read
	FromFiles      bool
	FilesAge       time.Duration // how old the files are
}

// Resources are those that can have reports, in the order in which they are shown.
var Resources = append(slices.Clone(contract.Resources), contract.KMSHealths)

// ResourceOf returns the resource of an object that has reports; false: it is another object.
func ResourceOf(o *unstructured.Unstructured) (contract.Resource, bool) {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	r := contract.ResourceFor(plural.Resource, o.GetName())
	return r, r.Kind == o.GetKind() && r.Group == plural.Group && r.Name == o.GetName()
}

// Newest is the time of the newest report on an object, by its node's clock. Zero: it has none.
func Newest(o *unstructured.Unstructured) (newest time.Time) {
	if _, is := ResourceOf(o); !is {
		return newest
	}
	for _, r := range operatorstatus.Read(o).Reports {
		for _, e := range r.Entries {
			newest = rollup.Latest(newest, e.LastChecked)
		}
	}
	return newest
}

// asOf is when the reports on an object are evaluated: Now, but in a must-gather the newest report's time, or Began.
func (s *Snapshot) asOf(o *unstructured.Unstructured) time.Time {
	if s.Began.IsZero() {
		return s.Now
	}
	return rollup.Latest(s.Began, Newest(o))
}

// find returns the first object of a kind with a name, in a namespace (empty: in any). If there is none, it is empty.
func (s *Snapshot) find(kind, namespace, name string) (o *unstructured.Unstructured, found bool) {
	for _, o := range s.Objects {
		if o.GetKind() == kind && o.GetName() == name && (namespace == "" || o.GetNamespace() == namespace) {
			return o, true
		}
	}
	return &unstructured.Unstructured{}, false
}

// decoded are the objects of a kind that can be decoded.
func decoded[T any](s *Snapshot, kind string) (all []*T) {
	for _, o := range s.Objects {
		object := new(T)
		if o.GetKind() == kind && runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, object) == nil {
			all = append(all, object)
		}
	}
	return all
}

// pods are those that can be decoded, the newest first.
func (s *Snapshot) pods() (pods []*corev1.Pod) {
	pods = decoded[corev1.Pod](s, "Pod")
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods
}
