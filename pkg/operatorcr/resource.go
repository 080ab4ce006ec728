// Package operatorcr defines the operator resources: their names, which parts of their
// status belong to this project, and how those are changed.
//
// Read decodes a status: the reports of nodes, in either form and by any writer, and
// this project's conditions. Removal is the patch that removes reports. The package does
// not evaluate the reports.
package operatorcr

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of operator resource that reports are written to.
type Resource struct {
	// Plural is its name in URLs, and in the configuration.
	Plural, Kind string
	// EncryptionStatus is the path of the field whose list healthReports has the
	// typed reports.
	EncryptionStatus []string
}

// Group and Version of all operator resources, and the Name of the one object of
// each.
const (
	Group   = "operator.openshift.io"
	Version = "v1"
	Name    = "cluster"
)

// Resources are all of them, in the order in which they are shown.
var Resources = []Resource{
	{"kubeapiservers", "KubeAPIServer", []string{"status", "encryptionStatus"}},
	{"openshiftapiservers", "OpenShiftAPIServer", []string{"status", "encryptionStatus"}},
	{"authentications", "Authentication", []string{"status", "oauthAPIServer", "encryptionStatus"}},
}

// healthReports is the list of typed reports.
const healthReports = "healthReports"

// Of returns the resource with a plural name; without a Kind: there is none.
func Of(plural string) Resource {
	for _, r := range Resources {
		if r.Plural == plural {
			return r
		}
	}
	return Resource{Plural: plural}
}

// OfKind returns the resource of a kind; without a Plural: there is none.
func OfKind(kind string) Resource {
	for _, r := range Resources {
		if r.Kind == kind {
			return r
		}
	}
	return Resource{Kind: kind}
}

// Plurals are the names of all resources, in order.
func Plurals() []string {
	names := make([]string, len(Resources))
	for i, r := range Resources {
		names[i] = r.Plural
	}
	return names
}

// GVR names the resource for a dynamic client.
func (r Resource) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: r.Plural}
}

// WithReports returns the object with typed reports and nothing else, as they are
// applied.
func (r Resource) WithReports(reports any) map[string]any {
	var value any = map[string]any{healthReports: reports}
	for _, field := range slices.Backward(r.EncryptionStatus) {
		value = map[string]any{field: value}
	}
	object := value.(map[string]any) //nolint:forcetypeassert // created above
	return r.with(object)
}

// WithConditions returns the object with conditions and nothing else, as they are
// applied.
func (r Resource) WithConditions(conditions any) map[string]any {
	return r.with(map[string]any{"status": map[string]any{"conditions": conditions}})
}

func (r Resource) with(object map[string]any) map[string]any {
	object["apiVersion"], object["kind"] = Group+"/"+Version, r.Kind
	object["metadata"] = map[string]any{"name": Name}
	return object
}
