package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// ConfigMapName is that of an API server's file for one plugin set.
func ConfigMapName(apiServer string, plugins []v1alpha1.Plugin) string {
	return contract.ConfigMapName(apiServer, v1alpha1.PluginSetHash(plugins))
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

// TokenName is that of the Secret with the token of a target's reporters.
func TokenName(target string) string { return contract.ReporterName(target) + "-token" }

// CredentialsName is that of the Secret that the pods' owner brings: a kubeconfig, and the
// files that it names. The operator neither reads nor writes it.
func CredentialsName(target string) string { return contract.ReporterName(target) + "-credentials" }

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
