// Package operatorcr defines the resources whose status has the reports: OpenShift's operator
// resources, and KMSHealths, this project's own for other clusters. It defines their names,
// which parts of their status belong to this project, and how those are changed.
//
// Read decodes a status: the reports of nodes, in either form and by any writer, and
// this project's conditions. Removal is the patch that removes reports. The package does
// not evaluate the reports.
package operatorcr

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of resource that reports are written to, and its object.
type Resource struct {
	// Group is empty for the core group.
	Group, Version string
	// Plural is its name in URLs, and in the configuration.
	Plural, Kind string
	// Namespace is the object's; empty: it is cluster-scoped. Name is empty for a resource
	// with an object for each target: ForTarget sets it.
	Namespace, Name string
	// EncryptionStatus is the path of the field whose list healthReports has the
	// typed reports; nil: it has none.
	EncryptionStatus []string
}

// Group and Version of OpenShift's operator resources, and the Name of the one object of
// each.
const (
	Group   = "operator.openshift.io"
	Version = "v1"
	Name    = "cluster"
)

// Resources are OpenShift's, in the order in which they are shown.
var Resources = []Resource{
	openshift("kubeapiservers", "KubeAPIServer", "status", "encryptionStatus"),
	openshift("openshiftapiservers", "OpenShiftAPIServer", "status", "encryptionStatus"),
	openshift("authentications", "Authentication", "status", "oauthAPIServer", "encryptionStatus"),
}

// KMSHealths are for clusters without those. manifests/kubernetes has the CRD. The operator
// creates an object for each target, named like it.
var KMSHealths = Resource{Group: "kmshealth.openshift.io", Version: "v1alpha1", Plural: "kmshealths", Kind: "KMSHealth"}

func openshift(plural, kind string, encryptionStatus ...string) Resource {
	return Resource{Group: Group, Version: Version, Plural: plural, Kind: kind, Name: Name, EncryptionStatus: encryptionStatus}
}

// healthReports is the list of typed reports.
const healthReports = "healthReports"

// Of returns the resource with a plural name; without a Kind: there is none.
func Of(plural string) Resource {
	for _, r := range append(Resources[:len(Resources):len(Resources)], KMSHealths) {
		if r.Plural == plural {
			return r
		}
	}
	return Resource{Plural: plural}
}

// ForTarget is the resource with a plural name, with the object that has a target's reports.
func ForTarget(plural, target string) Resource {
	r := Of(plural)
	if r.Name == "" {
		r.Name = target
	}
	return r
}

// Named is the resource and object of a name as String gives it, without the group: a plural
// name, and for KMSHealths also the object's.
func Named(name string) Resource {
	plural, object, _ := strings.Cut(name, "/")
	return ForTarget(plural, object)
}

// TargetName is the name that Named reads.
func (r Resource) TargetName() string {
	if r.PerTarget() {
		return r.Plural + "/" + r.Name
	}
	return r.Plural
}

// PerTarget reports whether the resource has an object for each target. The operator creates
// and deletes those.
func (r Resource) PerTarget() bool {
	return r.Group == KMSHealths.Group && r.Plural == KMSHealths.Plural
}

// String names the object, as kubectl get accepts it.
func (r Resource) String() string {
	name := r.Plural
	if r.Group != "" {
		name += "." + r.Group
	}
	name += "/" + r.Name
	if r.Namespace != "" {
		name += " -n " + r.Namespace
	}
	return name
}

// StatusPath are the elements of the URL of the object's status.
func (r Resource) StatusPath() []string {
	path := []string{"apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"api", r.Version}
	}
	if r.Namespace != "" {
		path = append(path, "namespaces", r.Namespace)
	}
	return append(path, r.Plural, r.Name, "status")
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

// Plurals are the names of OpenShift's resources, in order.
func Plurals() []string {
	names := make([]string, len(Resources))
	for i, r := range Resources {
		names[i] = r.Plural
	}
	return names
}

// GVR names the resource for a dynamic client.
func (r Resource) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Plural}
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
	version := schema.GroupVersion{Group: r.Group, Version: r.Version}
	metadata := map[string]any{"name": r.Name}
	if r.Namespace != "" {
		metadata["namespace"] = r.Namespace
	}
	object["apiVersion"], object["kind"], object["metadata"] = version.String(), r.Kind, metadata
	return object
}
