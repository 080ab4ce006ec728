package probe

import (
	"fmt"
	"strings"

	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// The rules of kube-apiserver 1.36 for one Status answer: k8s.io/apiserver/pkg/server/options/encryptionconfig,
// kmsv2PluginProbe, and ValidateKeyID of k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2.
const (
	healthzOK      = "ok"
	versionV2      = "v2"
	versionV2beta1 = "v2beta1"
	maxKeyID       = 1024
)

// judge applies kube-apiserver's rules to an answer: healthz is "ok"; version is v2 or v2beta1, and the one it was in
// the first answer (seen; empty before that); key_id is 1 to 1,024 bytes. It returns a verdict that names every rule
// that is broken, nil if none is; the key id where it is valid; and the version that the next answer must have.
func judge(answer *kmsapi.StatusResponse, seen string) (keyID, version string, v *verdict) {
	var broken []string
	reason := contract.ProtocolViolation
	if answer.Healthz != healthzOK {
		reason = contract.ReportedUnhealthy // the cause that the plugin itself reports has precedence
		broken = append(broken, fmt.Sprintf("healthz is %q, not %q", excerpt(answer.Healthz), healthzOK))
	}
	version = seen
	switch {
	case answer.Version != versionV2 && answer.Version != versionV2beta1:
		broken = append(broken, fmt.Sprintf("version is %q, not %q or %q", excerpt(answer.Version), versionV2,
			versionV2beta1))
	case seen == "":
		version = answer.Version
	case answer.Version != seen:
		broken = append(broken, fmt.Sprintf("version changed from %q to %q, and kube-apiserver keeps the first one "+
			"until it is restarted: restart it when the plugin works, and then this reporter", seen, answer.Version))
	}
	switch {
	case answer.KeyId == "" && answer.Healthz == healthzOK:
		broken = append(broken, "key_id is empty (Node's proto-loader calls the field keyId, and drops key_id)")
	case answer.KeyId == "": // some plugins name a key only while they are healthy
		broken = append(broken, "key_id is empty")
	case len(answer.KeyId) > maxKeyID:
		broken = append(broken, fmt.Sprintf("key_id is %d bytes, the bound is %d", len(answer.KeyId), maxKeyID))
	default:
		keyID = answer.KeyId
	}
	if answer.Healthz != healthzOK && answer.Version != versionV2 && answer.Version != versionV2beta1 {
		broken = append(broken, "the answer may be another message than StatusResponse")
	}
	if len(broken) > 0 {
		v = unhealthy(reason, strings.Join(broken, "; "))
	}
	return keyID, version, v
}

func excerpt(s string) string { return contract.Cut(s, 512) }
