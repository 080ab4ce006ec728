package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
)

// plainOC answers as oc does on a cluster that is not OpenShift.
const plainOC = `#!/bin/bash
case "$*" in
api-versions) printf 'apps/v1\nkmshealth.openshift.io/v1alpha1\nv1\n' ;;
api-resources*) printf 'pods\nkmshealths.kmshealth.openshift.io\n' ;;
*kmshealths.kmshealth.openshift.io*) printf 'kind: KMSHealthList\n' ;;
'get deployment -n kms-health kms-health-operator '*) printf 'apiServers:\n- {namespace: kube-system}' ;;
'get namespace kube-system '*) printf namespace/kube-system ;;
*'-n kube-system pods') printf 'kind: PodList\n' ;;
*) exit 1 ;;
esac
`

// Administrators with oc may also have clusters that are not OpenShift. On these, oc adm inspect gathers nothing. The
// operator's Deployment may have its file, which names the namespaces of API servers.
func TestAMustGatherByOCOfAPlainControlPlane(t *testing.T) {
	bin, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	must.Succeed(t, os.WriteFile(filepath.Join(bin, "oc"), []byte(plainOC), 0o700))
	cmd := exec.CommandContext(t.Context(), "bash", "../../manifests/must-gather/gather")
	cmd.Env = append(os.Environ(), "PATH="+bin+":/usr/bin:/bin", "MUST_GATHER_DIR="+out)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	for file, want := range map[string]string{"cluster-scoped-resources/kmshealth.openshift.io/kmshealths.yaml": "KMSHealthList",
		"namespaces/kube-system/core/pods.yaml": "PodList"} {
		list, err := os.ReadFile(filepath.Join(out, file))
		if err != nil || !strings.Contains(string(list), want) {
			t.Errorf("%v: %s", err, printed)
		}
	}
}
