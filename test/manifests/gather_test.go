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
*) exit 1 ;;
esac
`

// Administrators with oc may also have clusters that are not OpenShift. On these, oc adm inspect gathers nothing.
func TestAMustGatherByOCOfAPlainControlPlane(t *testing.T) {
	bin, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	must.Succeed(t, os.WriteFile(filepath.Join(bin, "oc"), []byte(plainOC), 0o700))
	cmd := exec.CommandContext(t.Context(), "bash", "../../manifests/must-gather/gather")
	cmd.Env = append(os.Environ(), "PATH="+bin+":/usr/bin:/bin", "MUST_GATHER_DIR="+out)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	list, err := os.ReadFile(filepath.Join(out, "cluster-scoped-resources/kmshealth.openshift.io/kmshealths.yaml"))
	if err != nil || !strings.Contains(string(list), "KMSHealthList") {
		t.Errorf("%v: %s", err, printed)
	}
}
