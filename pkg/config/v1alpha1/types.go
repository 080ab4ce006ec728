package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// APIVersion is the apiVersion of every file of this package.
	APIVersion = "kmshealth.openshift.io/v1alpha1"
	// ReporterKind is the kind of the reporter's file.
	ReporterKind = "ReporterConfiguration"
	// OperatorKind is the kind of the operator's file.
	OperatorKind = "OperatorConfiguration"
)

// ReporterConfiguration is the one file that kms-health-reporter reads. One
// file serves all nodes of a cluster: the node's name is not in it.
type ReporterConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// How plugins are probed.
	// +optional
	Probe Probe `json:"probe"`

	// The plugins to probe, at most 16. The list is required; with an empty one
	// nothing is probed and nothing is written. No two may
	// have the same keyID or the same endpoint.
	// +required
	Plugins []Plugin `json:"plugins"`

	// Where the reports are written. Not set: local only.
	// +optional
	Destination *Destination `json:"destination,omitempty"`

	// Where the reporter serves its own state. Not set: nothing listens.
	// +optional
	Serving *Serving `json:"serving,omitempty"`
}

// Probe is how plugins are probed, and how often.
type Probe struct {
	// How often each plugin is probed, from 1s to 1h. Each wait varies by up to
	// 10% either way, so that replicas do not write at the same time.
	// +default=30s
	Interval Duration `json:"interval"`

	// What is checked beside Status, which is called at every probe.
	// +optional
	Checks *Checks `json:"checks,omitempty"`
}

// Checks are what is checked beside Status.
type Checks struct {
	// Encrypt and decrypt a sample.
	// +optional
	RoundTrip RoundTrip `json:"roundTrip"`

	// Also call the standard gRPC health service at every probe. A plugin without
	// that service is not unhealthy for that reason.
	// +default=false
	GRPCHealth bool `json:"grpcHealth"`
}

// RoundTrip is a check with its own interval: a plugin, of either role, encrypts 32 random
// bytes and decrypts them again. Status can stay "ok" after the right to decrypt was
// revoked or the key was replaced; this check detects both. A remote KMS may bill each
// call.
type RoundTrip struct {
	// How often, from 1m to 24h; 0s turns the check off. It also runs at once when a plugin
	// names another key, and, at most every 15 s, when it turned unhealthy and while the last
	// round trip failed.
	// +default=5m
	Interval Duration `json:"interval"`
}

// Plugin is a KMS v2 plugin behind a unix socket.
type Plugin struct {
	// The id of the encryption-key secret that the plugin serves: 1 to 63
	// letters, digits, '-', '_' or '.', beginning and ending with a letter or
	// digit. May be omitted where the endpoint's file is named
	// kms-{keyID}.sock.
	// +default=taken from the endpoint
	KeyID string `json:"keyID"`

	// The plugin's socket: unix:///absolute/path, or unix:///@name for an
	// abstract socket. At most 107 bytes after unix:// (the kernel's bound).
	// +required
	Endpoint string `json:"endpoint"`

	// Write where the API server encrypts new data with this plugin, Read where it only
	// decrypts with it.
	// +required
	Role Role `json:"role"`

	// How long one call to the plugin may take, from 10ms to the interval. The
	// timeout that the API server uses for this provider is a good choice; its default
	// is 3s too.
	// +default=3s, or the interval where that is shorter
	Timeout Duration `json:"timeout"`
}

// Role is what an API server uses a plugin for.
type Role string

const (
	// RoleWrite means that the API server encrypts and decrypts with it.
	RoleWrite Role = "Write"
	// RoleRead means that the API server only decrypts what was encrypted with it earlier. It
	// must be able to encrypt all the same: kube-apiserver asks each KMS v2 plugin to.
	RoleRead Role = "Read"
)

// Destination is the object that reports are written to by Server-Side Apply on its
// status. It is never created and never read. Either resource or object is required.
type Destination struct {
	// One of OpenShift's operator resources, of operator.openshift.io/v1: its object named
	// cluster. A KMSHealth is named by object.
	// +optional
	Resource Resource `json:"resource,omitempty"`

	// Any other object. Its status must have conditions.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`

	// Absolute path of a kubeconfig. It, and every file it names, is read again
	// when it changes.
	// +default=/etc/kms-health/credentials/kubeconfig
	Kubeconfig string `json:"kubeconfig"`

	// The API servers to write to, in order of preference, at most 4. Each write tries
	// them in turn, with the credentials and the CA bundle of the kubeconfig. One that
	// failed is tried last by the next four writes.
	// +default=the server of the kubeconfig
	Servers []Server `json:"servers,omitempty"`

	// How long one write may take, all servers together, from 100ms to 1m.
	// +default=10s
	WriteTimeout Duration `json:"writeTimeout"`
}

// ObjectReference names an object whose status has conditions, a list keyed by type: such
// as the KMSHealth of an API server.
type ObjectReference struct {
	// The API group, such as kmshealth.openshift.io. Not set: the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// The version, such as v1alpha1.
	// +required
	Version string `json:"version"`

	// The plural name of the resource in URLs, such as kmshealths.
	// +required
	Resource string `json:"resource"`

	// The kind, such as KMSHealth.
	// +required
	Kind string `json:"kind"`

	// The object's namespace. Not set: it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// The object's name.
	// +required
	Name string `json:"name"`
}

// Server is one address of the API server.
type Server struct {
	// Its URL, such as https://localhost:6443, without user, password, query and
	// fragment. No two may be the same server.
	// +required
	URL string `json:"url"`

	// The name that its certificate must have.
	// +default=the host of the URL
	TLSServerName string `json:"tlsServerName,omitempty"`
}

// Resource is the plural name of a resource that has reports.
type Resource string

// Those that the code treats differently; all of them are in the table of pkg/contract.
const (
	ResourceKubeAPIServers Resource = contract.KubeAPIServers
	ResourceKMSHealths     Resource = contract.KMSHealthsPlural
)

// PerAPIServer reports whether each target has an object of its own.
func (r Resource) PerAPIServer() bool { return r == ResourceKMSHealths }

// Serving is where the reporter's own state is served over HTTP.
type Serving struct {
	// The IP address and port to listen on. Without tls it must be a loopback
	// address.
	// +required
	Address string `json:"address"`

	// Serve HTTPS. Not set: plain HTTP.
	// +optional
	TLS *ServingTLS `json:"tls,omitempty"`
}

// ServingTLS is how HTTPS is served. Files are read again, and every setting
// applies, from the next connection on. While the key pair is invalid, the last
// valid one is served.
type ServingTLS struct {
	// Absolute path of the certificate chain, PEM.
	// +required
	CertFile string `json:"certFile"`

	// Absolute path of the certificate's key, PEM.
	// +required
	KeyFile string `json:"keyFile"`

	// Absolute path of the CAs, PEM, that must have signed client certificates.
	// With it, all but /healthz and /readyz is denied (401) to clients without
	// such a certificate, and to all clients while the file is invalid.
	// +optional
	ClientCAFile string `json:"clientCAFile,omitempty"`

	// The lowest TLS version accepted.
	// +default=VersionTLS12
	MinVersion TLSVersion `json:"minVersion"`

	// The cipher suites accepted up to TLS 1.2, by their IANA names. Those of
	// TLS 1.3 cannot be chosen.
	// +default=Go's own choice
	CipherSuites []string `json:"cipherSuites,omitempty"`
}

// TLSVersion is a TLS version, named as in an OpenShift TLS profile.
type TLSVersion string

const (
	// TLS10 is TLS 1.0.
	TLS10 TLSVersion = "VersionTLS10"
	// TLS11 is TLS 1.1.
	TLS11 TLSVersion = "VersionTLS11"
	// TLS12 is TLS 1.2.
	TLS12 TLSVersion = "VersionTLS12"
	// TLS13 is TLS 1.3.
	TLS13 TLSVersion = "VersionTLS13"
)
