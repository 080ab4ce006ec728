package contract

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource is a kind of resource that reports are written to, and its object.
type Resource struct {
	Group, Version string
	Plural, Kind   string // the plural is its name in URLs, and in the configuration
	Name           string // of its object; empty if it has one for each API server: ResourceFor sets it
	// EncryptionStatus is the path of the field whose list healthReports has the
	// typed reports; nil if the resource has none.
	EncryptionStatus []string
	// ConfigMapsEncrypted means that clusters with it encrypt ConfigMaps together with Secrets,
	// so reporters' pods do not mount one by default.
	ConfigMapsEncrypted bool
	// APIServer is the one whose reports the object has; zero for a resource that has an object for each API server.
	APIServer APIServer
}

// APIServer is where an API server of OpenShift runs.
type APIServer struct {
	// Name is the same everywhere: in the configuration, in labels, metrics and Events, and in the names of objects.
	Name            string
	Namespace       string            // of its pods and of its encryption config
	PodSelector     map[string]string // the labels of its pods
	Container       string            // the one that mounts the plugins' sockets
	Deployment      string            // of its pods; empty: they are static
	ClusterOperator string            // which shows the conditions of the resource
}

// The group of OpenShift's operator resources, and the name of the only object of each.
const (
	OperatorGroup  = "operator.openshift.io"
	OperatorObject = "cluster"
)

// Plural names of the resources that the code treats differently.
const (
	// KubeAPIServers is the resource of the API server that stores Secrets, ConfigMaps and Nodes.
	KubeAPIServers = "kubeapiservers"
	// KMSHealthsPlural is this project's own resource.
	KMSHealthsPlural = "kmshealths"
)

// Resources are OpenShift's, in the order in which they are shown. A new row comes last. `make
// generate` writes what follows from a row into the manifests and pages.
var Resources = []Resource{
	openShift(KubeAPIServers, "KubeAPIServer", inStatus, APIServer{
		Name: "kube-apiserver", Namespace: "openshift-kube-apiserver", ClusterOperator: "kube-apiserver",
	}),
	openShift("openshiftapiservers", "OpenShiftAPIServer", inStatus, APIServer{
		Name: "openshift-apiserver", Namespace: "openshift-apiserver", Deployment: "apiserver",
		ClusterOperator: "openshift-apiserver",
	}),
	openShift("authentications", "Authentication", []string{"status", "oauthAPIServer", EncryptionStatus}, APIServer{
		Name: "oauth-apiserver", Namespace: "openshift-oauth-apiserver", Deployment: "apiserver",
		ClusterOperator: "authentication",
	}),
}

// KMSHealths are for clusters without OpenShift's resources. manifests/kubernetes has the CRD. The operator
// creates an object for each API server, named like it.
var KMSHealths = Resource{
	Group: "kmshealth.openshift.io", Version: "v1alpha1", Plural: KMSHealthsPlural, Kind: "KMSHealth",
}

// EncryptionStatus is the field with the typed reports, and HealthReports their list in it.
const (
	EncryptionStatus = "encryptionStatus"
	HealthReports    = "healthReports"
)

var inStatus = []string{"status", EncryptionStatus}

// openShift returns a row. The API server's pods have the label apiserver=true, and a container of its name.
func openShift(plural, kind string, encryptionStatus []string, s APIServer) Resource {
	s.PodSelector, s.Container = map[string]string{"apiserver": "true"}, s.Name
	return Resource{
		Group: OperatorGroup, Version: "v1", Plural: plural, Kind: kind, Name: OperatorObject,
		EncryptionStatus: encryptionStatus, ConfigMapsEncrypted: true, APIServer: s,
	}
}

// ResourceOf returns the resource with a plural name; if there is none, one without a Kind.
func ResourceOf(plural string) Resource {
	for _, r := range append([]Resource{KMSHealths}, Resources...) {
		if r.Plural == plural {
			return r
		}
	}
	return Resource{Plural: plural}
}

// ResourceFor is the resource with a plural name, with the object that has the reports of an API server.
func ResourceFor(plural, target string) Resource {
	r := ResourceOf(plural)
	if r.Name == "" {
		r.Name = target
	}
	return r
}

// PerAPIServer reports whether the resource has an object for each API server. The operator creates and deletes those.
func (r Resource) PerAPIServer() bool {
	return r.Group == KMSHealths.Group && r.Plural == KMSHealths.Plural
}

// String names the object, as kubectl get accepts it.
func (r Resource) String() string { return r.GVR().GroupResource().String() + "/" + r.Name }

// StatusPath are the elements of the URL of the object's status.
func (r Resource) StatusPath() []string {
	return []string{"apis", r.Group, r.Version, r.Plural, r.Name, "status"}
}

// ResourceNames are the names of OpenShift's resources, in order.
func ResourceNames() (names []string) {
	for _, r := range Resources {
		names = append(names, r.Plural)
	}
	return names
}

// GVR names the resource for a dynamic client.
func (r Resource) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Plural}
}

// WithStatus returns the object with its name, these fields of its status, if any, and nothing
// else, as they are applied.
func (r Resource) WithStatus(status map[string]any) map[string]any {
	object := map[string]any{"apiVersion": r.GVR().GroupVersion().String(), "kind": r.Kind,
		"metadata": map[string]any{"name": r.Name}}
	if len(status) > 0 {
		object["status"] = status
	}
	return object
}
