package source

import (
	"bytes"
	"context"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// place is where objects of a resource are.
type place struct {
	resource  string
	namespace string // empty: none
}

// kinds are those of the other objects that are kept, by resource.
var kinds = map[string]string{
	"clusteroperators": "ClusterOperator", "deployments": "Deployment", "leases": "Lease", "configmaps": "ConfigMap", "pods": "Pod",
}

// Gathered are objects of a must-gather, or of files.
type Gathered struct {
	objects []*unstructured.Unstructured
	// places are those that were gathered, also without an object.
	places map[place]bool
	broken map[place]bool  // those with a file that could not be read
	known  map[string]bool // the kinds, namespaces and names of objects
	// kmsMetrics are the lines about KMS of an API server's metrics; nil: there are none.
	kmsMetrics []byte
	metricsAt  string // the path of their file
}

func (g *Gathered) keep(o *unstructured.Unstructured) {
	for resource, kind := range kinds {
		if o.GetKind() != kind {
			continue
		}
		g.places[place{resource, o.GetNamespace()}] = true
		id := resource + "/" + o.GetNamespace() + "/" + o.GetName()
		if !g.known[id] { // a pod is in the list and in a file of its own
			g.known[id] = true
			g.objects = append(g.objects, o)
		}
	}
}

// isMetrics reports whether a file's path is that of the API server's metrics, as
// manifests/must-gather/gather writes them.
func isMetrics(at string) bool {
	return path.Base(at) == "kube-apiserver.metrics" && path.Base(path.Dir(at)) == "kms-health"
}

// metrics reads the API server's metrics. Of several files the first one counts: nothing in
// them shows which is newer.
func (r *reading) metrics(f treeFile) error {
	g, where := r.Gathered, place{resource: doctor.KMSMetrics.Resource}
	if g.kmsMetrics != nil {
		r.note("%s has metrics of kube-apiserver, too; those of %s count", printable(f.at), printable(g.metricsAt))
		return nil
	}
	g.places[where], g.broken[where] = true, true
	data, err := f.content()
	if err != nil {
		return err
	}
	lines, err := aboutKMS(bytes.NewReader(data))
	if err != nil {
		return err
	}
	g.kmsMetrics, g.metricsAt, g.broken[where] = lines, f.at, false
	return nil
}

// placeOf is what a file of a must-gather has, by its path.
func placeOf(at string) (where place, ok bool) {
	parts := strings.Split(strings.TrimSuffix(at, path.Ext(at)), "/")
	for i := len(parts) - 1; i >= 0; i-- {
		rest := parts[i+1:]
		switch {
		case parts[i] == "cluster-scoped-resources" && len(rest) >= 2:
			return place{resource: rest[1]}, true
		case parts[i] != "namespaces" || len(rest) < 3:
		case rest[1] == "pods": // namespaces/<namespace>/pods/<pod>/<pod>.yaml
			return place{"pods", rest[0]}, true
		default:
			return place{rest[2], rest[0]}, true
		}
	}
	return place{}, false
}

// Empty reports whether there is nothing.
func (g *Gathered) Empty() bool { return len(g.objects) == 0 }

// Offline reads files for the doctor.
type Offline struct{ Taken }

// Targets returns the operator resources. One that is not there does not exist: a
// must-gather has no other trace of it.
func (f Offline) Targets(_ context.Context, wanted func(string) bool) (found []view.Target, unread []*doctor.Unread) {
	for _, t := range f.Taken.Targets {
		if wanted(t.Name) {
			found = append(found, t)
		}
	}
	return found, nil
}

// Get returns an object; nil: it does not exist.
func (f Offline) Get(_ context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	for _, o := range f.Gathered.objects {
		if o.GetKind() == kinds[resource.Resource] && o.GetNamespace() == namespace && o.GetName() == name {
			return o, nil
		}
	}
	return nil, f.unread("get", resource, namespace)
}

// List returns the objects of a namespace.
func (f Offline) List(_ context.Context, resource schema.GroupVersionResource, namespace string) (all []*unstructured.Unstructured, err error) {
	for _, o := range f.Gathered.objects {
		if o.GetKind() == kinds[resource.Resource] && o.GetNamespace() == namespace {
			all = append(all, o)
		}
	}
	return all, f.unread("list", resource, namespace)
}

// Metrics returns the lines about KMS of the metrics of the API server that answered when
// they were gathered. What oc adm inspect gathers has none.
func (f Offline) Metrics(context.Context) ([]byte, error) {
	return f.Gathered.kmsMetrics, f.unread("get", doctor.KMSMetrics, "")
}

func (f Offline) unread(verb string, resource schema.GroupVersionResource, namespace string) error {
	where := place{resource.Resource, namespace}
	switch {
	case f.Gathered.broken[where]:
		return &doctor.Unread{Why: doctor.Failed, Verb: verb, Resource: resource.Resource, Namespace: namespace, Message: "a file cannot be read, see the warnings"}
	case f.Gathered.places[where]:
		return nil
	}
	return &doctor.Unread{Why: doctor.NotGathered, Verb: verb, Resource: resource.Resource, Namespace: namespace}
}
