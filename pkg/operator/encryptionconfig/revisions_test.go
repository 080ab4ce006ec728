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

func TestSetOfASecret(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{"k": []byte(oneProvider), "broken": []byte("{}")}}
	for name, test := range map[string]struct {
		secret  *corev1.Secret
		config  v1alpha1.EncryptionConfig
		plugins string // their keyIDs
		problem string // empty: known
	}{
		"with a plugin": {secret, v1alpha1.EncryptionConfig{Key: "k"}, "x_secrets", ""},
		"of a revision from before KMS was turned on": {nil, v1alpha1.EncryptionConfig{Key: "k"}, "", ""},
		"broken":          {secret, v1alpha1.EncryptionConfig{Key: "broken"}, "", "has another apiVersion"},
		"without the key": {secret, v1alpha1.EncryptionConfig{Key: "gone"}, "", `has no key "gone"`},
	} {
		got := Read(test.secret, test.config)
		var ids []string
		for _, p := range got.Config.Plugins {
			ids = append(ids, p.KeyID)
		}
		if got.Known != (test.problem == "") || strings.Join(ids, " ") != test.plugins ||
			!strings.Contains(got.Problem, test.problem) || (got.Problem == "") != (test.problem == "") {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Known && got.Config.Plugins == nil {
			t.Errorf("%s: a known set is never nil", name)
		}
	}
}
