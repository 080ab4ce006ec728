// Package podspec injects kms-health-reporter into the PodSpec of an API server, and reads
// the status of pods.
//
// It is for operators that own their API server's pods (Inject), for files
// (InjectManifest), and for Server-Side Apply (Container). Injection is idempotent, and
// replaces an older injection. Other parts of the pod are never changed: if a container or
// volume of the reporter would conflict with an existing one, there is an error and no
// change.
//
// The package is pure: it uses no file, no clock and no network. The caller must make sure
// that the image can be pulled and that the files exist; a pod with the reporter also
// starts without its ConfigMap, its Secret and its host files.
package podspec

const (
	// ContainerName is the name of the reporter's container.
	ContainerName = "kms-health"

	// ConfigVolume holds the reporter's file. A container named ContainerName that
	// mounts it at ConfigFolder is the reporter, of any version.
	ConfigVolume = "kms-health-config"
	// CredentialsVolume holds a token, or a client certificate with its key.
	CredentialsVolume = "kms-health-credentials"
	// NoTokenVolume is an empty folder over TokenFolder.
	NoTokenVolume = "kms-health-no-token"

	// ConfigHashAnnotation is the annotation, on the pod or the pod template,
	// whose change replaces the pods. The reporter sees it in ConfigHashVariable.
	ConfigHashAnnotation = "kmshealth.openshift.io/config-hash"

	// OwnFolder is the parent of all folders that the reporter's files are mounted at.
	OwnFolder = "/etc/kms-health"
	// ConfigFolder is where the reporter finds config.yaml and kubeconfig.
	ConfigFolder = OwnFolder + "/config"
	// CredentialsFolder is where the reporter finds token, or tls.crt and
	// tls.key; with host files, in a folder below it (Options.Credentials).
	CredentialsFolder = OwnFolder + "/credentials"
	// ServingFolder is where the reporter finds the key pair that it serves with.
	ServingFolder = OwnFolder + "/serving"
	// TokenFolder is where the ServiceAccount admission plugin mounts a pod's
	// token into every container that mounts nothing there. It would be the API
	// server's own token, and an admin's.
	TokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

	// NodeVariable is the environment variable that names the node.
	NodeVariable = "KMS_HEALTH_NODE"
	// ConfigHashVariable is the environment variable that holds the value of
	// ConfigHashAnnotation at the time the pod was made.
	ConfigHashVariable = "KMS_HEALTH_CONFIG_HASH"

	// InstallerNodeName is the placeholder that OpenShift's static pod installer
	// replaces by the node's name, anywhere in a manifest
	// (library-go, pkg/operator/staticpod/installerpod). It replaces REVISION
	// likewise. Nothing else that this package adds contains either placeholder.
	InstallerNodeName = "NODE_NAME"
)
