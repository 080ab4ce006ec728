package encryptionconfig

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

const oneProvider = `{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration,
  resources: [{resources: [secrets],
  providers: [{kms: {apiVersion: v2, name: x_secrets, endpoint: "unix:///run/kms.sock"}}, {identity: {}}]}]}`

func secretOf(data string) *corev1.Secret {
	return &corev1.Secret{Data: map[string][]byte{"k": []byte(data)}}
}

func TestSetOfASecret(t *testing.T) {
	config := v1alpha1.EncryptionConfig{Key: "k"}
	for _, test := range []struct {
		name    string
		secret  *corev1.Secret
		known   bool
		plugins string // their keyIDs
		problem string
	}{
		{"with a plugin", secretOf(oneProvider), true, "x", ""},
		{"of a revision from before KMS was turned on", nil, true, "", ""},
		{"broken", secretOf("{}"), false, "", "has another apiVersion"},
		{"without the key", &corev1.Secret{}, false, "", `has no key "k"`},
	} {
		got := Read(test.secret, config)
		var ids []string
		for _, p := range got.Config.Plugins {
			ids = append(ids, p.KeyID)
		}
		if got.Known != test.known || strings.Join(ids, " ") != test.plugins ||
			!strings.Contains(got.Problem, test.problem) || (got.Problem == "") != (test.problem == "") {
			t.Errorf("%s: %+v", test.name, got)
		}
		if got.Known && got.Config.Plugins == nil {
			t.Errorf("%s: a known set is never nil", test.name)
		}
	}
}

func TestSetFollowsKeyAndKeyIDsOfTheConfiguration(t *testing.T) {
	secret := secretOf(oneProvider)
	secret.Data["other"] = []byte(oneProvider)
	for want, config := range map[string]v1alpha1.EncryptionConfig{
		"x": {Key: "k"},
		"7": {Key: "other", KeyIDs: map[string]string{"unix:///run/kms.sock": "7"}},
		"8": {Key: "k", KeyIDs: map[string]string{"unix:///run/kms.sock": "8"}},
	} {
		if got := Read(secret, config); len(got.Config.Plugins) != 1 || got.Config.Plugins[0].KeyID != want {
			t.Errorf("%+v: %+v, want keyID %s", config, got, want)
		}
	}
	if got := Read(secret, v1alpha1.EncryptionConfig{Key: "gone"}); got.Known || got.Problem == "" {
		t.Errorf("%+v", got)
	}
}

// Labels of a Secret may change at any time; only a write of its data may have changed what an
// API server loads.
func TestSecretIsAsOldAsItsData(t *testing.T) {
	at := func(hour int) *metav1.Time { return &metav1.Time{Time: time.Date(2026, 5, 8, hour, 0, 0, 0, time.UTC)} }
	entry := func(hour int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: at(hour), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const data, labels = `{"f:data":{".":{},"f:k":{}}}`, `{"f:metadata":{"f:labels":{}}}`
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    int
	}{
		"never changed":           {nil, 8},
		"its data":                {[]metav1.ManagedFieldsEntry{entry(9, data)}, 9},
		"its labels later":        {[]metav1.ManagedFieldsEntry{entry(9, data), entry(11, labels)}, 9},
		"its data by two writers": {[]metav1.ManagedFieldsEntry{entry(10, data), entry(9, data)}, 10},
	} {
		secret := secretOf(oneProvider)
		secret.CreationTimestamp, secret.ManagedFields = *at(8), test.entries
		if got := Read(secret, v1alpha1.EncryptionConfig{Key: "k"}); got.Written.Hour() != test.want {
			t.Errorf("%s: %s, want %d:00", name, got.Written, test.want)
		}
	}
}
