// Package sidecar puts kms-health-reporter into a PodSpec, beside an API server,
// and takes it out again.
//
// It is for operators that own their API server's pods (Inject, Remove), for
// files (InjectManifest, RemoveManifest), and for Server-Side Apply (Container).
// Injecting twice is injecting once, an older injection is replaced, and removal
// leaves what was there before. What others put into the pod is never changed:
// where a container or volume of ours would collide with theirs, there is an
// error and no change.
//
// The package is pure: it reads no file, no clock and no network. Whether the
// image can be pulled, and whether the files arrive, is the caller's affair; a
// pod with the reporter in it starts without its ConfigMap, its Secret and its
// host files.
package sidecar

const (
	// ContainerName is the name of the reporter's container.
	ContainerName = "kms-health"

	// ConfigVolume holds the reporter's file. A container of our name that
	// mounts it at ConfigFolder is ours, of whatever version.
	ConfigVolume = "kms-health-config"
	// CredentialsVolume holds a token, or a client certificate with its key.
	CredentialsVolume = "kms-health-credentials"
	// NoTokenVolume is an empty folder over TokenFolder.
	NoTokenVolume = "kms-health-no-token"

	// ConfigHashAnnotation is the annotation, on the pod or the pod template,
	// whose change replaces the pods. The reporter sees it in ConfigHashVariable.
	ConfigHashAnnotation = "kmshealth.openshift.io/config-hash"

	// ConfigFolder is where the reporter finds config.yaml and kubeconfig.
	ConfigFolder = "/etc/kms-health/config"
	// CredentialsFolder is where the reporter finds token, or tls.crt and
	// tls.key; with host files, in a folder below it (Options.Credentials).
	CredentialsFolder = "/etc/kms-health/credentials"
	// TokenFolder is where the ServiceAccount admission plugin mounts a pod's
	// token into every container that mounts nothing there. It would be the API
	// server's own token, and an admin's.
	TokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

	// NodeVariable is the environment variable that names the node.
	NodeVariable = "KMS_HEALTH_NODE"
	// ConfigHashVariable is the environment variable that holds the value of
	// ConfigHashAnnotation at the time the pod was made.
	ConfigHashVariable = "KMS_HEALTH_CONFIG_HASH"

	// InstallerNodeName is the word that OpenShift's static pod installer
	// replaces by the node's name, wherever in a manifest it stands
	// (library-go, pkg/operator/staticpod/installerpod). It replaces REVISION
	// likewise. Neither stands in anything that this package adds of itself.
	InstallerNodeName = "NODE_NAME"
)
