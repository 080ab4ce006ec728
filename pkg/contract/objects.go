package contract

// Names of the operator's own objects, as the manifests have them.
const (
	// OperatorName is the name of its Deployment, Lease, field manager, and source of Events.
	OperatorName = "kms-health-operator"
	// CAManager is the field manager under which it writes CAAnnotation, and nothing else.
	CAManager = "kms-health-operator-ca"
	// OperatorConfigMap has its file.
	OperatorConfigMap = "kms-health-operator-config"
	// OperatorNamespace is its namespace on OpenShift, KubernetesNamespace elsewhere.
	OperatorNamespace   = "openshift-kms-health"
	KubernetesNamespace = "kms-health"
	// ClusterOperator is the name of its ClusterOperator on OpenShift.
	ClusterOperator = "kms-health"
	// ConfigFile is the key of a ConfigMap that has a configuration file.
	ConfigFile = "config.yaml"
	// ReporterContainer is the name of the container of every reporter.
	ReporterContainer = "kms-health"
)

// SocketFolders are the folders of the nodes that the policies of the manifests allow reporters to mount.
var SocketFolders = []string{"/var/run/kmsplugin", "/run/kmsplugin"}

// Labels and annotations of the objects that the operator creates for an API server.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by" // its value is OperatorName
	APIServerLabel = "kmshealth.openshift.io/api-server"
	ModeLabel      = "kmshealth.openshift.io/mode"
	// Managed is the label selector of these objects.
	Managed = ManagedByLabel + "=" + OperatorName + "," + APIServerLabel

	// BesideAnnotation of a companion pod has the UID of its API server pod, as the node knows that pod.
	BesideAnnotation = "kmshealth.openshift.io/beside"
	// ConfigAnnotation and KubeconfigAnnotation have a reporter's files where its pod mounts no ConfigMap.
	ConfigAnnotation     = "kmshealth.openshift.io/config"
	KubeconfigAnnotation = "kmshealth.openshift.io/kubeconfig"
	// ConfigHashAnnotation has the hash of the plugin set that a reporter's own pod was created for. Another hash
	// replaces the pod.
	ConfigHashAnnotation = "kmshealth.openshift.io/config-hash"
	// PodHashAnnotation has the hash of the pod, or of the container and volumes in a Deployment, as they were sent.
	// Another hash replaces the pod, or rolls the Deployment.
	PodHashAnnotation = "kmshealth.openshift.io/pod-hash"
	// StateAnnotation has the operator's state of an API server. It is on a ClusterRole, which no KMS plugin encrypts.
	StateAnnotation = "kmshealth.openshift.io/state"
	// ProbeRequestedAnnotation is on an operator resource or a KMSHealth: a new value requests a round
	// trip of each plugin. ValidRequest has its form. The operator only reads it.
	ProbeRequestedAnnotation = "kmshealth.openshift.io/probe-requested"
	// CAAnnotation has the API server's CA for the operator's own pod, if that pod mounts no ConfigMap.
	CAAnnotation = "kmshealth.openshift.io/ca"
)

// Annotations of the Secret with a token. Times are RFC 3339, both by the API server's clock
// as the operator saw it, so that a node's wrong clock does not shorten a token's life.
const (
	IssuedAtAnnotation  = "kmshealth.openshift.io/issued-at"
	ExpiresAtAnnotation = "kmshealth.openshift.io/expires-at"
)

// Environment variables of the reporter's container.
const (
	NodeVariable = "KMS_HEALTH_NODE"
	// PodUIDVariable has the pod's UID, which the reports name as their writer.
	PodUIDVariable = "KMS_HEALTH_POD_UID"
	// ConfigHashVariable has the value of ConfigHashAnnotation.
	ConfigHashVariable = "KMS_HEALTH_CONFIG_HASH"
	// APIServerUserVariable has the user, group, supplementary groups and capabilities of the API
	// server's container, as in "0:0 groups 0 DAC_OVERRIDE": the reporter's own.
	APIServerUserVariable = "KMS_HEALTH_API_SERVER_USER"
)

// The reporter's emptyDir, on disk, with the samples of round trips that outlive the container.
const (
	StateVolume = "kms-health-state"
	StateFolder = "/var/lib/kms-health"
	StateFile   = StateFolder + "/samples"
)

// ValidRequest reports whether a text can request a round trip: 1 to 63 letters, digits, '-', '_'
// and '.', with a letter or digit at both ends.
func ValidRequest(text string) bool { return IsWord(text, "-_.") }

// ReporterName is the name of the ServiceAccount, roles and DaemonSet of an API server's reporters.
func ReporterName(apiServer string) string { return "kms-health-reporter-" + apiServer }

// Event is a reason of an Event of the operator that no condition has. make generate writes a constant for each.
type Event struct{ Reason, Type, When string }

// Events are all of them. The reasons of conditions are reasons of Events, too.
var Events = []Event{
	{"Applied", "Normal", "an object was created or changed"},
	{"Deleted", "Normal", "an object was deleted"},
	{"Injected", "Normal", "the reporter was added to a Deployment, or changed in it"},
	{"Ejected", "Normal", "the reporter was removed from a Deployment"},
	{"ReportRemoved", "Normal", "a report that no reporter writes any more was removed"},
	{"RequestInvalid", "Warning",
		"the annotation `kmshealth.openshift.io/probe-requested` has a text that is no request, and is ignored"},
}

// IsReporter reports whether a container of an API server's pod is a reporter, OpenShift's own included.
func IsReporter(container string) bool {
	return container == ReporterContainer || container == "kms-health-reporter"
}
