package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperatorConfiguration is the one file that kms-health-operator reads. It is
// read again when it changes. A file with a mistake is rejected as a whole, and the
// last valid one stays in use.
type OperatorConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// What the operator does with the objects that it owns.
	// +default=Managed
	ManagementState ManagementState `json:"managementState"`

	// The reporter's image, by digest best.
	// +default=the operator's environment variable REPORTER_IMAGE
	Image string `json:"image"`

	// How the reporters probe. A change is live: it replaces no pod.
	// +optional
	Probe Probe `json:"probe"`

	// The form of the reports.
	// +default=Condition
	Format Format `json:"format"`

	// What pods are replaced for.
	// +default=Needed
	Rollout Rollout `json:"rollout"`

	// The roll-ups on each operator resource: Degraded is KMSPluginsDegraded, and is
	// required. Available and Progressing add KMSPluginsAvailable and
	// KMSPluginsProgressing, which a cluster operator aggregates without any delay.
	// +default=[Degraded]
	Rollups []Rollup `json:"rollups,omitempty"`

	// The API servers whose plugins are watched, at most 16. The list is
	// required. A target that is removed from the list is cleaned up.
	// +required
	Targets []Target `json:"targets"`
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

// Rollout is which changes replace pods.
type Rollout string

const (
	// RolloutNeeded replaces pods for a changed plugin set, where the set belongs
	// to the pod, for changed roles where companions mount a ConfigMap, and for a
	// changed container. Other changes replace no pod.
	RolloutNeeded Rollout = "Needed"
	// RolloutAlways replaces pods for every change of the reporter's file.
	RolloutAlways Rollout = "Always"
)

// Rollup is a condition that sums up what all nodes report.
type Rollup string

const (
	// RollupDegraded is True when a plugin is unhealthy.
	RollupDegraded Rollup = "Degraded"
	// RollupAvailable is False when the write key's plugin is unhealthy on every node.
	RollupAvailable Rollup = "Available"
	// RollupProgressing is True while plugins or keys are being changed.
	RollupProgressing Rollup = "Progressing"
)

// Target is one kind of API server with KMS plugins beside it.
type Target struct {
	// A name for it: a DNS label of at most 40 characters.
	// +required
	Name string `json:"name"`

	// The resource that gets the reports: on OpenShift one of operator.openshift.io/v1,
	// whose object is named cluster; elsewhere kmshealths, of which the operator creates an
	// object with the target's name. Its CRD is in manifests/kubernetes.
	// +required
	Resource Resource `json:"resource"`

	// The namespace of the API server's pods and of its encryption config.
	// +required
	Namespace string `json:"namespace"`

	// The labels of the API server's pods.
	// +required
	PodSelector map[string]string `json:"podSelector"`

	// The API server's container, which mounts the plugins' sockets.
	// +default=the pod's first
	Container string `json:"container,omitempty"`

	// The Secret that holds the API server's EncryptionConfiguration. It must be left
	// out where plugins are given.
	// +optional
	EncryptionConfig EncryptionConfig `json:"encryptionConfig"`

	// The plugins, instead of encryptionConfig, where no Secret names them: a
	// kube-apiserver whose encryption config is a file on its node. An empty list means
	// that KMS is off.
	// +optional
	Plugins []Plugin `json:"plugins,omitempty"`

	// How reporters are deployed so that they can reach the sockets.
	// +default=Auto
	Delivery Delivery `json:"delivery"`

	// How the reporters' pods get the ConfigMap with their file, for the deliveries
	// Companion and DaemonSet. The other deliveries mount it.
	// +default=Auto
	ConfigSource ConfigSource `json:"configSource"`

	// The Deployment to patch, for the delivery of that name.
	// +optional
	Deployment string `json:"deployment,omitempty"`

	// The labels of the nodes that a DaemonSet serves.
	// +default=the label node-role.kubernetes.io/control-plane, with any value
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// How a reporter authenticates. Companion and DaemonSet support BoundToken only,
	// the other deliveries every kind but that.
	// +default=BoundToken, or MintedToken for Deployment and External
	Credentials Credentials `json:"credentials"`

	// How a reporter reaches the API server.
	// +optional
	APIServer APIServer `json:"apiServer"`

	// Where the reporters serve their own state. Left out: nowhere.
	// +optional
	Serving *TargetServing `json:"serving,omitempty"`
}

// EncryptionConfig is a Secret with an EncryptionConfiguration, and the keyIDs that
// cannot be derived from it.
type EncryptionConfig struct {
	// The Secret's name. A pod of revision N uses {secret}-{N}.
	// +default=encryption-config
	Secret string `json:"secret"`

	// The key in the Secret's data.
	// +default=encryption-config
	Key string `json:"key"`

	// keyIDs by endpoint, for plugins whose socket and provider names do not contain one.
	// +optional
	KeyIDs map[string]string `json:"keyIDs,omitempty"`
}

// Delivery is a way to deploy reporters where the sockets are.
type Delivery string

const (
	// DeliveryAuto chooses Companion or DaemonSet by where the sockets are, and
	// deploys nothing beside pods that have a third-party reporter.
	DeliveryAuto Delivery = "Auto"
	// DeliveryCompanion runs one pod beside each API server pod.
	DeliveryCompanion Delivery = "Companion"
	// DeliveryDaemonSet runs one agent on each node with sockets in a host folder.
	DeliveryDaemonSet Delivery = "DaemonSet"
	// DeliveryDeployment injects a container into the pods of a Deployment.
	DeliveryDeployment Delivery = "Deployment"
	// DeliveryExternal creates the configuration file and the credentials; the pods'
	// owner adds the container.
	DeliveryExternal Delivery = "External"
)

// ConfigSource is how a reporter's pod gets the ConfigMap with its file.
type ConfigSource string

const (
	// ConfigSourceAuto is Annotation where kube-apiserver encrypts configmaps with KMS,
	// or where that is not known, else ConfigMap.
	ConfigSourceAuto ConfigSource = "Auto"
	// ConfigSourceConfigMap mounts the ConfigMap.
	ConfigSourceConfigMap ConfigSource = "ConfigMap"
	// ConfigSourceAnnotation copies the content of the ConfigMap into annotations of the pod, which
	// the downward API makes files. The pod starts while no ConfigMap can be decrypted.
	ConfigSourceAnnotation ConfigSource = "Annotation"
)

// Credentials is a way for a reporter to authenticate.
type Credentials string

const (
	// CredentialsBoundToken is the kubelet's projected token: bound to the pod and
	// its node, and rotated by the kubelet.
	CredentialsBoundToken Credentials = "BoundToken"
	// CredentialsMintedToken is a token of 30 days, in a Secret, renewed by the
	// operator at half its life.
	CredentialsMintedToken Credentials = "MintedToken"
	// CredentialsClientCertificate is a certificate from the cluster's own signer,
	// in a Secret, renewed by the operator at half its life.
	CredentialsClientCertificate Credentials = "ClientCertificate"
	// CredentialsLegacyToken is a token that never expires, in a Secret. It stops
	// working when the API server restarts while its plugin is unhealthy.
	CredentialsLegacyToken Credentials = "LegacyToken"
)

// APIServer is how a reporter reaches the API server.
type APIServer struct {
	// Its URL.
	// +default=https://localhost:6443 for Companion and DaemonSet, else https://kubernetes.default.svc
	Server string `json:"server,omitempty"`

	// The name that its certificate must have, where that differs from the URL's
	// host.
	// +optional
	TLSServerName string `json:"tlsServerName,omitempty"`

	// Further addresses, at most 3, in order of preference, for when that one does not
	// answer. They need the same CA bundle. An empty list means none.
	// +default=the cluster's internal address, where the server is the node itself
	Fallbacks []Server `json:"fallbacks,omitempty"`
}

// TargetServing is where the reporters of a target serve their own state.
type TargetServing struct {
	// The IP address and port. Reporters of several targets on the host network of
	// one node need different ports.
	// +required
	Address string `json:"address"`

	// A Secret with tls.crt and tls.key, and ca.crt for client certificates, in the
	// reporters' namespace. The cluster's TLS profile applies. Left out: plain HTTP
	// on a loopback address.
	// +optional
	Secret string `json:"secret,omitempty"`
}
