package controlplane

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// StartForTest starts a control plane that ends with the test. If the test fails, the logs are kept in .logs/ in the
// root of the checkout, and the test's output has their path.
func StartForTest(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	if options.Dir == "" {
		// Not by Start, which would remove a temporary folder, and with it the logs, when it fails.
		options.Dir = t.TempDir()
	}
	c, err := Start(t.Context(), options)
	if err != nil {
		keepLogs(t, options.Dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			keepLogs(t, options.Dir)
		}
	})
	return c
}

// AdminKubeconfig returns the path of an administrator's kubeconfig. The file is removed at the end of the test.
func (c *ControlPlane) AdminKubeconfig(t testing.TB) string {
	t.Helper()
	path, err := c.WriteKubeconfig(t.TempDir(), Kubeconfig{Credential: Credential{Token: c.adminToken}})
	must.Succeed(t, err)
	return path
}

func keepLogs(t testing.TB, dir string) {
	t.Helper()
	root, err := program.Root()
	kept := filepath.Join(root, ".logs", unsafeInName.ReplaceAllString(t.Name(), "_"))
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // only a bad pattern is an error
	// Remove the logs of an earlier run of the same test.
	err = errors.Join(err, os.RemoveAll(kept), os.MkdirAll(kept, 0o755))
	for _, log := range logs {
		content, readErr := os.ReadFile(log)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(kept, filepath.Base(log)), content, 0o600))
	}
	t.Logf("the servers' logs are in %s: %v", kept, err)
}

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
