package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// Labels and annotations of what the operator makes.
const (
	ManagedBy   = "app.kubernetes.io/managed-by"
	Manager     = "kms-health-operator" // ManagedBy's value, and the field manager
	TargetLabel = "kmshealth.openshift.io/target"
	// Ours selects what the operator made for targets.
	Ours          = ManagedBy + "=" + Manager + "," + TargetLabel
	DeliveryLabel = "kmshealth.openshift.io/delivery"

	BesideAnnotation     = "kmshealth.openshift.io/beside" // the UID, on its node, of the API server pod
	ConfigAnnotation     = "kmshealth.openshift.io/config"
	KubeconfigAnnotation = "kmshealth.openshift.io/kubeconfig"
	ConfigHashAnnotation = podspec.ConfigHashAnnotation
	PodHashAnnotation    = "kmshealth.openshift.io/pod-hash"
	// StateAnnotation is on a target's ClusterRole, which no KMS plugin encrypts.
	StateAnnotation = "kmshealth.openshift.io/state"

	// ProofName is the app.kubernetes.io/name of the pods that prove an image.
	ProofName = "kms-health-image-proof"
)

// Name is that of a target's identity, role, DaemonSet, and credentials.
func Name(target string) string { return "kms-health-reporter-" + target }

// ConfigMapName is that of a target's file for one plugin set. The name changes
// with the set, since a pod's file must name no socket that the pod does not have.
func ConfigMapName(target string, plugins []v1alpha1.Plugin) string {
	return Name(target) + "-" + v1alpha1.PluginSetHash(plugins)[:10]
}

// CompanionConfigMapName is that of the file of companions. The name changes also with the
// roles: while the write key changes, two API servers have the same sockets with other ones.
func CompanionConfigMapName(target string, plugins []v1alpha1.Plugin) string {
	roles := make([]string, len(plugins))
	for i, p := range plugins {
		roles[i] = p.KeyID + "\x00" + string(p.Role)
	}
	slices.Sort(roles)
	return ConfigMapName(target+"-"+shortHash(roles...), plugins)
}

// CredentialsName is that of a target's Secret, one for each kind, so that an old
// kind stays until no pod mounts it.
func CredentialsName(target string, c v1alpha1.Credentials) string {
	return Name(target) + "-" + strings.ToLower(string(c))
}

// SecretRoleName is that of the role by which the operator reads a target's
// encryption config.
func SecretRoleName(target string) string { return "kms-health-operator-" + target }

func companionName(target string, parts ...string) string {
	return "kms-health-" + target + "-" + shortHash(parts...)
}

func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:5])
}
