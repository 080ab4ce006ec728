package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperatorConfiguration is the one file that kms-health-operator reads. It is
// read again when it changes. A file with an error is rejected as a whole, and the
// last valid one stays in use.
type OperatorConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// What the operator does with the objects that it owns.
	// +default=Managed
	ManagementState ManagementState `json:"managementState"`

	// The reporter's image, by digest best.
	// +default=the operator's environment variable REPORTER_IMAGE
	Image string `json:"image,omitempty"`

	// How the reporters probe. A change is live, and replaces no pod; but a DaemonSet whose
	// configSource is Annotation replaces its pods, one node after another.
	// +optional
	Probe Probe `json:"probe"`

	// The API servers whose plugins are watched, at most 16. The list is
	// required. A target that is removed from the list is cleaned up.
	// +required
	APIServers []APIServer `json:"apiServers"`
}

// ManagementState is what the operator does with the objects that it owns.
type ManagementState string

const (
	// Managed creates and updates the objects as configured.
	Managed ManagementState = "Managed"
	// Unmanaged changes no workload. Credentials and CA bundles are still renewed.
	Unmanaged ManagementState = "Unmanaged"
	// Removed deletes the objects, and undoes the operator's changes of other objects.
	Removed ManagementState = "Removed"
)

// APIServer is one kind of API server with KMS plugins beside it.
type APIServer struct {
	// Its name: a DNS label of at most 40 characters. OpenShift's resources have a fixed one.
	// +default=that of OpenShift's API server; required for kmshealths
	Name string `json:"name"`

	// The resource that gets the reports: on OpenShift one of operator.openshift.io/v1,
	// whose object is named cluster; elsewhere kmshealths, of which the operator creates an
	// object with the target's name. Its CRD is in manifests/kubernetes.
	// +required
	Resource Resource `json:"resource"`

	// The namespace of the API server's pods and of its encryption config.
	// +default=that of OpenShift's API server; required for kmshealths
	Namespace string `json:"namespace"`

	// The labels of the API server's pods.
	// +default=those of OpenShift's API server; required for kmshealths
	PodSelector map[string]string `json:"podSelector"`

	// The API server's container, which mounts the plugins' sockets.
	// +default=that of OpenShift's API server, where podSelector has its default, else the pod's first
	Container string `json:"container,omitempty"`

	// The Secret that holds the API server's EncryptionConfiguration. It must not be set
	// beside plugins.
	// +optional
	EncryptionConfig EncryptionConfig `json:"encryptionConfig,omitzero"`

	// The plugins, instead of encryptionConfig, where no Secret names them: a
	// kube-apiserver whose encryption config is a file on its node. An empty list means
	// that KMS is off.
	// +optional
	Plugins []Plugin `json:"plugins,omitzero"`

	// How reporters are deployed so that they can reach the sockets.
	// +default=Auto
	Mode Mode `json:"mode"`

	// How the reporters' pods get the ConfigMap with their file, for the modes
	// CompanionPod and DaemonSet. Sidecar always mounts it.
	// +default=Annotation for OpenShift's operator resources, where ConfigMaps are encrypted, else ConfigMap
	ConfigSource ConfigSource `json:"configSource"`

	// The Deployment that gets the container, with the mode Sidecar. Not set: the
	// pods' owner adds it.
	// +optional
	Deployment string `json:"deployment,omitempty"`

	// The labels of the nodes that a DaemonSet serves.
	// +default=the label node-role.kubernetes.io/control-plane, with any value
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// How a reporter reaches the API server.
	// +optional
	Connection Connection `json:"connection"`

	// Where the reporters serve their own state. Not set: nowhere.
	// +optional
	Serving *APIServerServing `json:"serving,omitempty"`
}

// EncryptionConfig is a Secret with an EncryptionConfiguration, and the keyIDs that
// cannot be derived from it.
type EncryptionConfig struct {
	// The Secret's name. A pod of revision N uses {secret}-{N}.
	// +default=encryption-config for OpenShift's resources; required for kmshealths
	Secret string `json:"secret,omitempty"`

	// The key in the Secret's data.
	// +default=encryption-config
	Key string `json:"key,omitempty"`

	// keyIDs by endpoint, for plugins whose socket and provider names do not contain one.
	// +optional
	KeyIDs map[string]string `json:"keyIDs,omitempty"`
}

// Mode is a way to deploy reporters where the sockets are.
type Mode string

const (
	// ModeAuto chooses CompanionPod or DaemonSet by where the sockets are.
	ModeAuto Mode = "Auto"
	// ModeCompanionPod runs one pod beside each API server pod.
	ModeCompanionPod Mode = "CompanionPod"
	// ModeDaemonSet runs one agent on each node with sockets in a host folder.
	ModeDaemonSet Mode = "DaemonSet"
	// ModeSidecar is a container in the API server's own pod: added to the
	// Deployment of the target, or, without one, by the pod's owner, who then brings
	// the credentials.
	ModeSidecar Mode = "Sidecar"
)

// ConfigSource is how a reporter's pod gets the ConfigMap with its file.
type ConfigSource string

const (
	// ConfigSourceConfigMap mounts the ConfigMap. A pod does not start while it cannot be decrypted.
	ConfigSourceConfigMap ConfigSource = "ConfigMap"
	// ConfigSourceAnnotation copies the content of the ConfigMap into annotations of the pod, which
	// the downward API makes files. The pod starts while no ConfigMap can be decrypted.
	ConfigSourceAnnotation ConfigSource = "Annotation"
)

// Connection is how a reporter reaches the API server.
type Connection struct {
	// Its URL.
	// +default=https://localhost:6443 for CompanionPod and DaemonSet, else https://kubernetes.default.svc
	Server string `json:"server,omitempty"`

	// The name that its certificate must have, where that differs from the URL's
	// host.
	// +optional
	TLSServerName string `json:"tlsServerName,omitempty"`

	// Further addresses, at most 3, in order of preference, for when that one does not
	// answer. They need the same CA bundle. An empty list means none.
	// +default=the cluster's internal address, where the server is the node itself
	Fallbacks []Server `json:"fallbacks,omitzero"`
}

// APIServerServing is where the reporters of a target serve their own state.
type APIServerServing struct {
	// The IP address and port. Reporters of several targets on the host network of
	// one node need different ports.
	// +required
	Address string `json:"address"`

	// A Secret with tls.crt and tls.key, and ca.crt for client certificates, in the
	// reporters' namespace. The cluster's TLS profile applies. Not set: plain HTTP
	// on a loopback address.
	// +optional
	Secret string `json:"secret,omitempty"`
}
