//go:build integration

package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Reporters may run in the pods of an API server, which has a namespace of its own.
func TestAMustGatherWithoutOcHasTheNamespacesOfTheTargets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "must-gather")
	cmd := exec.CommandContext(t.Context(), "bash", root+"/must-gather/gather")
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":/usr/bin:/bin", "KUBECONFIG="+adminKubeconfig(t, plain), "MUST_GATHER_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, namespace := range []string{"kms-health", "kube-system"} {
		for _, file := range []string{"pods.yaml", "configmaps.yaml"} {
			if _, err := os.Stat(filepath.Join(dir, "namespaces", namespace, "core", file)); err != nil {
				t.Error(err)
			}
		}
	}
	if t.Failed() || strings.Contains(string(out), "default") {
		t.Errorf("%s", out)
	}
}
