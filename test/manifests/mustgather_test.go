//go:build integration

package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	namespaces, err := os.ReadDir(filepath.Join(dir, "namespaces"))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var gathered []string
	for _, namespace := range namespaces {
		gathered = append(gathered, namespace.Name())
		for _, file := range []string{"pods.yaml", "configmaps.yaml"} {
			if _, err := os.Stat(filepath.Join(dir, "namespaces", namespace.Name(), "core", file)); err != nil {
				t.Error(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"kms-health", "kube-system"}, gathered); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s\n%s", diff, out)
	}
}
