package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// The other resources that are read. KMSMetrics stands for a part of the API server's
// /metrics.
var (
	ClusterOperators = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusteroperators"}
	Deployments      = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	Leases           = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	ConfigMaps       = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Pods             = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	KMSMetrics       = schema.GroupVersionResource{Resource: "/metrics"}
)

// Reader reads a cluster, or files. Its errors are *Unread.
type Reader interface {
	// Targets reads the operator resources; those that do not exist are skipped.
	Targets(ctx context.Context, wanted func(string) bool) ([]view.Target, []*Unread)
	// Get returns an object; nil: it does not exist.
	Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// List returns all objects of a namespace.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error)
	// Metrics returns the lines of the API server's metrics that KMS is about.
	Metrics(ctx context.Context) ([]byte, error)
}

// Why something could not be read.
type Why string

// The reasons of an Unread.
const (
	Forbidden   Why = "Forbidden"
	NotGathered Why = "NotGathered" // the files have none, which does not mean that there is none
	Failed      Why = "Failed"
)

// Unread is what could not be read. Other places may have been.
type Unread struct {
	Why       Why
	Verb      string
	Resource  string
	Namespace string // empty: none
	Message   string // of the API server
}

func (u *Unread) Error() string { return fmt.Sprintf("%s: %s %s", u.Why, u.Verb, u.what()) }

func (u *Unread) what() string {
	if u.Namespace == "" {
		return u.Resource
	}
	return u.Resource + " in namespace " + u.Namespace
}

// Snapshot is what was read.
type Snapshot struct {
	// Now is the time by the API server's clock. Offset is how far that is ahead of this
	// machine's; zero also where files were read.
	Now    time.Time
	Offset time.Duration
	// Namespaces may be the operator's; it is in the first one that has its Deployment.
	Namespaces []string
	Wanted     func(target string) bool
	// Files means that an operator resource that is not there may exist.
	Files      bool
	Targets    []view.Target
	Objects    []*unstructured.Unstructured
	KMSMetrics []byte // nil: not read
	Unread     []*Unread
}

// Collect reads what Evaluate needs into a Snapshot, of which Namespaces and Wanted are set.
// What cannot be read is recorded in it.
func Collect(ctx context.Context, r Reader, s *Snapshot) {
	s.Targets, s.Unread = r.Targets(ctx, s.Wanted)
	namespaces := s.Namespaces
	for _, namespace := range s.Namespaces {
		if s.get(ctx, r, Deployments, namespace, contract.OperatorName) {
			namespaces = []string{namespace}
			// Whether it is in another one, too, does not matter.
			s.Unread = slices.DeleteFunc(s.Unread, func(u *Unread) bool { return u.Resource == Deployments.Resource })
			break
		}
	}
	if slices.ContainsFunc(namespaces, func(name string) bool { return name != contract.KubernetesNamespace }) {
		s.get(ctx, r, ClusterOperators, "", contract.ClusterOperator)
	}
	for _, namespace := range namespaces {
		s.get(ctx, r, Leases, namespace, contract.OperatorName)
		s.list(ctx, r, ConfigMaps, namespace)
		s.list(ctx, r, Pods, namespace)
	}
	for _, t := range s.configured() {
		exists := slices.ContainsFunc(s.Targets, func(had view.Target) bool { return had.Name == t.object() })
		// With reporters in pods of their own, those of the API server do not matter.
		if !exists || t.Namespace == "" || slices.Contains(namespaces, t.Namespace) || s.hasOwnPods(t.Name) {
			continue
		}
		namespaces = append(namespaces, t.Namespace)
		s.list(ctx, r, ConfigMaps, t.Namespace)
		s.list(ctx, r, Pods, t.Namespace)
	}
	var err error
	if s.KMSMetrics, err = r.Metrics(ctx); err != nil {
		s.unread(err)
	}
}

// hasOwnPods reports whether reporters of a target run in pods of their own.
func (s *Snapshot) hasOwnPods(target string) bool {
	return slices.ContainsFunc(s.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Pod" && o.GetLabels()[contract.APIServerLabel] == target && runs(o)
	})
}

func (s *Snapshot) get(ctx context.Context, r Reader, resource schema.GroupVersionResource, namespace, name string) bool {
	o, err := r.Get(ctx, resource, namespace, name)
	if err != nil {
		s.unread(err)
	}
	if o == nil {
		return false
	}
	s.Objects = append(s.Objects, o)
	return true
}

func (s *Snapshot) list(ctx context.Context, r Reader, resource schema.GroupVersionResource, namespace string) {
	all, err := r.List(ctx, resource, namespace)
	if err != nil {
		s.unread(err)
	}
	for _, o := range all {
		if relevant(o) {
			s.Objects = append(s.Objects, o)
		}
	}
}

func (s *Snapshot) unread(err error) {
	var u *Unread
	if !errors.As(err, &u) {
		u = &Unread{Why: Failed, Message: err.Error()}
	}
	s.Unread = append(s.Unread, u)
}

// relevant excludes the pods and ConfigMaps of others.
func relevant(o *unstructured.Unstructured) bool {
	if o.GetLabels()[contract.APIServerLabel] != "" || o.GetAnnotations()[contract.ConfigHashAnnotation] != "" {
		return true
	}
	if o.GetKind() == "ConfigMap" {
		return o.GetName() == contract.OperatorConfigMap
	}
	if isOperators(o) {
		return true
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	return slices.ContainsFunc(containers, func(c any) bool {
		container, _ := c.(map[string]any)
		return container["name"] == contract.ReporterContainer
	})
}

// cannotRead is why a resource could not be read in a namespace; nil: it was.
func (s *Snapshot) cannotRead(resource schema.GroupVersionResource, namespace string) *Unread {
	for _, u := range s.Unread {
		if u.Resource == resource.Resource && u.Namespace == namespace {
			return u
		}
	}
	return nil
}

// Configured is a target in the operator's configuration.
type Configured struct {
	Name      string `json:"name"` // in labels, metrics and Events
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"` // the API server's
}

// object is the name of the target's object among those that are read.
func (c Configured) object() string {
	return contract.ResourceFor(c.Resource, c.Name).TargetName()
}
