package v1alpha1

import "github.com/kms-health/kms-health/pkg/contract"

// OperatorConfiguration is the operator's file. It is config.yaml in the ConfigMap kms-health-operator-config.
type OperatorConfiguration struct {
	TypeMeta `json:",inline"`
	// What the operator may change.
	// +default=Managed
	ManagementState ManagementState `json:"managementState"`
	// The reporter's image, best by digest.
	// +default=the operator's environment variable REPORTER_IMAGE
	Image string `json:"image,omitempty"`
	// How the reporters probe. A change is live: it replaces no pod.
	Probe Probe `json:"probe,omitzero"`
	// How often reporters write an unchanged report, from 1s to 10m. A change is live. Not set: after
	// each round of probes.
	UnchangedEvery Duration `json:"unchangedEvery,omitzero"`
	// The API servers with plugins. What is removed from the list is cleaned up.
	APIServers []APIServer `json:"apiServers"`
}

// ManagementState is what the operator does with the objects that it owns.
type ManagementState string

const (
	Managed   ManagementState = "Managed"   // Creates and updates the objects.
	Unmanaged ManagementState = "Unmanaged" // Changes nothing, but renews CA, TLS settings and sidecars' tokens.
	Removed   ManagementState = "Removed"   // Deletes the objects, and undoes changes of other objects.
)

// APIServer is an API server, with all its pods.
type APIServer struct {
	// A DNS label of at most 40 characters. Fixed for OpenShift's resources.
	// +default=by resource; required for kmshealths
	Name string `json:"name"`
	// The resource that has the reports and conditions.
	Resource Resource `json:"resource"`
	// The namespace of the API server's pods and of its encryption config.
	// +default=by resource; required for kmshealths
	Namespace string `json:"namespace"`
	// The labels of the API server's pods.
	// +default=by resource; required for kmshealths
	PodSelector map[string]string `json:"podSelector"`
	// The container that mounts the plugins' sockets.
	// +default=by resource, where podSelector has its default, else the pod's first
	Container string `json:"container,omitempty"`
	// The Secret with the EncryptionConfiguration; not with plugins.
	EncryptionConfig EncryptionConfig `json:"encryptionConfig,omitzero"`
	// The plugins, if the encryption config is a file on the node. Empty: KMS is off.
	Plugins []Plugin `json:"plugins,omitzero"`
	// How reporters reach the sockets.
	// +default=Auto
	Mode Mode `json:"mode"`
	// How pods get their file, with CompanionPod and DaemonSet. Sidecar mounts the ConfigMap.
	// +default=Annotation for OpenShift's resources, else ConfigMap
	ConfigSource ConfigSource `json:"configSource"`
	// With Sidecar: the Deployment that gets the container. Not set: the pods' owner adds it.
	Deployment string `json:"deployment,omitempty"`
	// With DaemonSet: the labels of the nodes that get an agent.
	// +default=the label node-role.kubernetes.io/control-plane, with any value
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// How a reporter reaches the API server.
	Connection Connection `json:"connection,omitzero"`
	// Where the reporters serve their state. Not set: nowhere.
	Serving *APIServerServing `json:"serving,omitempty"`
}

// EncryptionConfig is a Secret with an EncryptionConfiguration.
type EncryptionConfig struct {
	// The Secret's name. A pod of revision N uses {secret}-{N}.
	// +default=encryption-config for OpenShift's resources; required for kmshealths
	Secret string `json:"secret,omitempty"`
	// The key in the Secret's data.
	// +default=encryption-config
	Key string `json:"key,omitempty"`
}

// Mode is how reporters are deployed. See [modes](../explain/modes.md).
type Mode string

const (
	ModeAuto         Mode = "Auto"         // CompanionPod or DaemonSet, by where the sockets are.
	ModeCompanionPod Mode = "CompanionPod" // A pod for each API server pod.
	ModeDaemonSet    Mode = "DaemonSet"    // An agent on each node, for sockets in a folder of it.
	// ModeSidecar is a container in the API server's pod, added to its Deployment, or by the pod's
	// owner, who then brings the credentials.
	ModeSidecar Mode = "Sidecar"
)

// Modes are all of them.
var Modes = []Mode{ModeAuto, ModeCompanionPod, ModeDaemonSet, ModeSidecar}

// InOwnersPods reports whether the reporter runs inside the API server's own pods,
// whose ServiceAccount is not the reporter's.
func (m Mode) InOwnersPods() bool { return m == ModeSidecar }

// ServesNode reports whether a reporter serves whichever pods of the API server run on its node, not one of them.
func (m Mode) ServesNode() bool { return m == ModeDaemonSet }

// OwnerInjects reports whether the pods' owner adds the reporter's container, and brings its credentials.
func (t *APIServer) OwnerInjects() bool { return t.Mode.InOwnersPods() && t.Deployment == "" }

// ReportsTo is the object that has the API server's reports.
func (t *APIServer) ReportsTo() contract.Resource {
	return contract.ResourceFor(string(t.Resource), t.Name)
}

// ConfigSource is how a reporter's pod gets its file.
type ConfigSource string

const (
	ConfigSourceConfigMap ConfigSource = "ConfigMap" // Mounts the ConfigMap. No pod starts while it cannot be decrypted.
	// ConfigSourceAnnotation copies the file into annotations of the pod. It starts while no ConfigMap can be decrypted.
	ConfigSourceAnnotation ConfigSource = "Annotation"
)

// Connection is how a reporter reaches the API server.
type Connection struct {
	// The API server's URL.
	// +default=https://localhost:6443 for CompanionPod, DaemonSet and static pods, else https://kubernetes.default.svc
	Server string `json:"server,omitempty"`
	// The name that its certificate must have.
	// +default=the host of the URL
	TLSServerName string `json:"tlsServerName,omitempty"`
	// Further servers, at most 3, in order of preference, with the same CA bundle. Empty: none.
	// +default=the cluster's internal address
	Fallbacks []Server `json:"fallbacks,omitzero"`
}

// APIServerServing is where the reporters of an API server serve their state.
type APIServerServing struct {
	// The IP address and port. Reporters on the network of one node need different ports.
	Address string `json:"address"`
	// A Secret in the reporters' namespace with tls.crt and tls.key, and ca.crt for client
	// certificates. Not set: plain HTTP on a loopback address.
	Secret string `json:"secret,omitempty"`
	// What is accepted with the Secret.
	// +default=the cluster's TLS profile; without OpenShift Intermediate
	TLS *TLSSettings `json:"tls,omitempty"`
}

// TLSSettings are what a server accepts of its clients.
type TLSSettings struct {
	// The lowest TLS version accepted.
	MinVersion TLSVersion `json:"minVersion"`
	// The cipher suites up to TLS 1.2, by their IANA names.
	// +default=Go's own choice
	CipherSuites []string `json:"cipherSuites,omitempty"`
}
