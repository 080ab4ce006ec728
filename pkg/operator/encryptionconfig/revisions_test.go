package encryptionconfig

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
