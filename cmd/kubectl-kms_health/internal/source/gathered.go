package source

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	known  map[string]bool // the kinds, namespaces and names of objects
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
