package controlplane

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kms-health/kms-health/test/harness/program"
)

// StartForTest starts a control plane that ends with the test. When the test
// failed, its logs are kept in .logs/ in the root of the checkout, and the test's
// output has their path.
func StartForTest(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	if options.Dir == "" {
		// Made here, so that the logs of a failed start are still there below.
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

func keepLogs(t testing.TB, dir string) {
	t.Helper()
	kept, err := copyLogs(t.Name(), dir)
	if err != nil {
		t.Logf("no logs were kept: %v", err)
		return
	}
	t.Logf("the servers' logs are in %s", kept)
}

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func copyLogs(test, dir string) (string, error) {
	root, err := program.Root()
	if err != nil {
		return "", err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return "", err
	}
	if len(logs) == 0 {
		return "", errors.New("no server has written one")
	}
	kept := filepath.Join(root, ".logs", unsafeInName.ReplaceAllString(test, "_"))
	// What lies there is of an earlier run of the same test.
	if err := os.RemoveAll(kept); err != nil {
		return "", err
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(kept, filepath.Base(log)), content, 0o600); err != nil {
			return "", err
		}
	}
	return kept, nil
}
