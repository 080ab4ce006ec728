//go:build integration

package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kube-apiserver has no admission by SCCs, so the test only compares the fields, with the defaults of the CRD.
func TestTheSCCAllowsWhatReportersNeedAndNothingElse(t *testing.T) {
	for _, o := range openshift.base {
		if o.GetKind() != "SecurityContextConstraints" {
			continue
		}
		got, anybody := map[string]any{}, map[string]any{"type": "RunAsAny"}
		for key, value := range o.Object {
			if key != "metadata" && key != "kind" && key != "apiVersion" {
				got[key] = value
			}
		}
		if diff := cmp.Diff(got, map[string]any{
			"allowHostDirVolumePlugin": true, "allowHostNetwork": true, "allowHostPorts": false, "allowHostPID": false,
			"allowHostIPC": false, "allowPrivilegedContainer": false, "allowPrivilegeEscalation": false,
			"defaultAllowPrivilegeEscalation": false, "allowedCapabilities": []any{"DAC_OVERRIDE"},
			"defaultAddCapabilities": []any{}, "requiredDropCapabilities": []any{"ALL"}, "readOnlyRootFilesystem": true,
			"runAsUser": anybody, "seLinuxContext": anybody, "fsGroup": anybody, "supplementalGroups": anybody,
			"seccompProfiles": []any{"runtime/default"}, "priority": float64(0), "users": []any{}, "groups": []any{},
			"volumes": []any{"configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"},
		}); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Error("there is no SCC")
}
