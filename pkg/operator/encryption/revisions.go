package encryption

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// Set is the set of plugins of an API server.
type Set struct {
	Known   bool   // whether Config is valid. If not, the last known set stays active
	Config  Config // without any plugin, KMS is off
	Problem string // why a Secret gives no set, without anything from it but the names of fields
	// Written is when the Secret was last written, by the API server's clock; zero: it does not
	// exist. A process that was started earlier may have loaded another configuration.
	Written time.Time
}

// Read returns the set of the Secret of an encryption config; nil: it does not exist, so
// there is no plugin.
//
// A revision from before KMS was turned on has no Secret. That it does not exist is a fact only while the
// live Secret can be read.
func Read(secret *corev1.Secret, config v1alpha1.EncryptionConfig) Set {
	if secret == nil {
		return Set{Known: true, Config: Config{Plugins: []v1alpha1.Plugin{}}}
	}
	data, ok := secret.Data[config.Key]
	if !ok {
		return Set{Problem: fmt.Sprintf("the Secret has no key %q", config.Key)}
	}
	c, err := Parse(data, config.KeyIDs)
	if err != nil {
		return Set{Problem: err.Error()}
	}
	return Set{Known: true, Config: c, Written: written(secret)}
}

// written is when the data of a Secret was last written: its managed fields say who owns the
// data, and when that writer last wrote.
func written(secret *corev1.Secret) time.Time {
	last := secret.CreationTimestamp.Time
	for _, f := range secret.ManagedFields {
		ofData := f.FieldsV1 == nil || strings.Contains(f.FieldsV1.String(), `"f:data"`)
		if ofData && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
