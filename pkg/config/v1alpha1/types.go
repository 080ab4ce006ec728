// Package v1alpha1 is the file format of kms-health, kmshealth.openshift.io/v1alpha1: types, strict decoding, defaults
// and validation.
//
// Decoding reports every error at once, each with its path and value, and returns either a complete configuration or
// none: there is no half-accepted file. The package reads no file itself.
//
// A field is required, unless it has a +default, or its JSON omits it where it is not set.
package v1alpha1

import (
	"cmp"
	_ "embed" // for the samples
	"slices"
	"strings"

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

// TypeMeta is a file's version and kind. (metav1's package would be a quarter of the reporter's binary.)
type TypeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// ReporterConfiguration is the reporter's file. One file serves all nodes of a cluster: the node's name is not in it.
type ReporterConfiguration struct {
	TypeMeta `json:",inline"`
	// How the plugins are probed.
	Probe Probe `json:"probe,omitzero"`
	// At most 16, each with a keyID and an endpoint of its own. Empty: nothing is probed or written.
	Plugins []Plugin `json:"plugins"`
	// Where the reports are written. Not set: local only.
	Destination *Destination `json:"destination,omitempty"`
	// Where the reporter serves its state. Not set: nothing listens.
	Serving *Serving `json:"serving,omitempty"`
}

// Probe is how plugins are probed, and how often.
type Probe struct {
	// How often each plugin is probed, from 1s to 1h. Each wait varies by up to 10%.
	// +default=30s
	Interval Duration `json:"interval"`
	// What is checked in addition to Status.
	Checks Checks `json:"checks,omitzero"`
}

// Checks are in addition to Status, which is called at every probe.
type Checks struct {
	// Encrypt and decrypt a sample.
	RoundTrip RoundTrip `json:"roundTrip,omitzero"`
}

// RoundTrip is a check with its own interval. A plugin, of either role, encrypts 32 random
// bytes and decrypts them again.
type RoundTrip struct {
	// How often, from 1m to 24h; 0s turns the check off.
	// +default=5m
	Interval Duration `json:"interval"`
	// A new value makes one round trip with each plugin at once, at most every 15s: 1 to 63 letters, digits, '-', '_'
	// or '.'. The operator sets it from the annotation kmshealth.openshift.io/probe-requested.
	Requested string `json:"requested,omitempty"`
}

// Plugin is a KMS v2 plugin behind a unix socket.
type Plugin struct {
	// 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit.
	// +default=of an endpoint kms-{keyID}.sock; otherwise required
	KeyID string `json:"keyID"`
	// The plugin's socket, spelled as for kube-apiserver: unix:///absolute/path without "..", or
	// unix:///@name for an abstract socket; at most 107 bytes after unix://.
	Endpoint string `json:"endpoint"`
	// What the API server uses it for.
	Role Role `json:"role"`
	// How long one call may take, from 10ms to the interval: as the provider in the encryption config.
	// +default=3s, or the interval where that is shorter
	Timeout Duration `json:"timeout"`
}

// PluginSetHash identifies a plugin set, as 64 hex digits: its sockets, in any order. Roles and timeouts
// are no part of it: a reporter follows those without being replaced.
func PluginSetHash(plugins []Plugin) string {
	type socket struct{ KeyID, Endpoint string }
	set := make([]socket, len(plugins))
	for i, p := range plugins {
		set[i] = socket{p.KeyID, Plain(p.Endpoint)}
	}
	slices.SortFunc(set, func(a, b socket) int {
		return cmp.Or(strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Endpoint, b.Endpoint))
	})
	return contract.FileHash([]byte(contract.Marshal(set)))
}

// Plain returns the plain spelling of an endpoint, by which endpoints are compared; an invalid one unchanged.
func Plain(endpoint string) string {
	if address, err := SocketAddress(endpoint); err == nil {
		return Endpoint(CleanSocket(address))
	}
	return endpoint
}

// Role is the use of a plugin.
type Role string

const (
	RoleWrite Role = "Write" // The API server encrypts and decrypts with it.
	RoleRead  Role = "Read"  // The API server only decrypts with it. It must be able to encrypt all the same.
)

// Destination is the object that has the reports. Reports are written by Server-Side Apply of its status; the object is
// never created or read.
type Destination struct {
	// The resource. On OpenShift it is the API server's operator resource, whose object is named cluster.
	Resource Resource `json:"resource"`
	// The object's name, with kmshealths alone: the API server's, such as kube-apiserver.
	Name string `json:"name,omitempty"`
	// Absolute path of a kubeconfig. It, and every file it names, is read again when it changes.
	// +default=/etc/kms-health/credentials/kubeconfig
	Kubeconfig string `json:"kubeconfig"`
	// The API servers to write to, at most 4, tried in this order, with the credentials and the CA
	// bundle of the kubeconfig. One that failed is tried last by the next four writes.
	// +default=the server of the kubeconfig
	Servers []Server `json:"servers,omitempty"`
	// How long one write may take, all servers together, from 100ms to 1m.
	// +default=10s
	WriteTimeout Duration `json:"writeTimeout"`
	// How often an unchanged report is written, from 1s to 10m. Not set: after each round of probes.
	UnchangedEvery Duration `json:"unchangedEvery,omitzero"`
}

// Server is one address of the API server.
type Server struct {
	// Such as https://localhost:6443, without user, password, query and fragment.
	URL string `json:"url"`
	// The name that its certificate must have.
	// +default=the host of the URL
	TLSServerName string `json:"tlsServerName,omitempty"`
}

// Resource is the plural name of a resource that has reports.
type Resource string

// Resources that the code treats differently. The table of pkg/contract has all of them.
const (
	ResourceKubeAPIServers Resource = contract.KubeAPIServers
	ResourceKMSHealths     Resource = contract.KMSHealthsPlural
)

// Serving is where the reporter's state is served over HTTP.
type Serving struct {
	// The IP address and port to listen on. Without tls it must be a loopback address.
	Address string `json:"address"`
	// Serve HTTPS. Not set: plain HTTP.
	TLS *ServingTLS `json:"tls,omitempty"`
}

// ServingTLS is how HTTPS is served. The files are read for each connection. While the
// key pair is invalid, the last valid one is served.
type ServingTLS struct {
	// Absolute path of the certificate chain (PEM).
	CertFile string `json:"certFile"`
	// Absolute path of its key (PEM).
	KeyFile string `json:"keyFile"`
	// Absolute path of the CAs (PEM) of client certificates, which are required then. While the file
	// is invalid, no client is accepted.
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// The lowest TLS version accepted.
	// +default=VersionTLS12
	MinVersion TLSVersion `json:"minVersion"`
	// The cipher suites up to TLS 1.2, by their IANA names.
	// +default=Go's own choice
	CipherSuites []string `json:"cipherSuites,omitempty"`
}

// TLSVersion is a TLS version, named as in an OpenShift TLS profile.
type TLSVersion string

const (
	TLS10 TLSVersion = "VersionTLS10" // TLS 1.0.
	TLS11 TLSVersion = "VersionTLS11" // TLS 1.1.
	TLS12 TLSVersion = "VersionTLS12" // TLS 1.2.
	TLS13 TLSVersion = "VersionTLS13" // TLS 1.3.
)

// ReporterSample explains every field of the reporter's file, and is a valid file itself. OperatorOpenShift and
// OperatorKubernetes are the operator's file for OpenShift, and for a plain control plane.
var (
	//go:embed reporter-sample.yaml
	ReporterSample []byte
	//go:embed operator-openshift.yaml
	OperatorOpenShift []byte
	//go:embed operator-kubernetes.yaml
	OperatorKubernetes []byte
)
