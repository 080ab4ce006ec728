//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// A rotation of tokens and of the CA ends no process and causes no gap in the reports. TestSidecar rotates client
// certificates.
func testCredentialRotation(h *scenario) {
	h.awaitVersion(h.version) // an earlier rollout has ended
	before := h.allPIDs(h.node())
	h.parts(part{name: "tokens", run: testTokens}, part{name: "CA", run: testCA})
	h.untouched(h.node(), before)
	h.awaitHealthy()
}

func testTokens(h *scenario) {
	start := time.Now()
	old := h.tokens()
	if len(old) < 3 {
		h.t.Fatalf("%d tokens of reporters, want those of three", len(old))
	}
	// The operator requests a new token for the Secret. A restarted kubelet requests new tokens for its pods.
	h.kubectl("-n", apiservers.OpenShift.Namespace, "delete", "secret", "kms-health-reporter-openshift-apiserver-token")
	h.must(h.node().RestartKubelet())
	h.await(waitLimit, "every reporter has a new token", func() error {
		tokens := h.tokens()
		if len(tokens) < 3 {
			return fmt.Errorf("%d tokens of reporters, want those of three", len(tokens))
		}
		for path, token := range tokens {
			if was, known := old[path]; known && bytes.Equal(token, was) {
				return fmt.Errorf("%s is as it was", path)
			}
		}
		return nil
	})
	h.steady(start, fixture.State.Healthy, apiservers.All...)
}

func testCA(h *scenario) {
	start := time.Now()
	h.must(h.RotateCA(cluster.TrustBoth))
	// The operator copies its own pod's CA to its reporters.
	h.awaitKubeconfigs(2)
	h.must(h.RotateCA(cluster.ServeByNext))
	h.await(waitLimit, "kube-apiserver serves by the new CA", func() error { return h.ServedByNext(h.ctx, h.node()) })
	h.must(h.RotateCA(cluster.TrustNext))
	h.awaitKubeconfigs(1)
	time.Sleep(5 * interval)
	h.steady(start, fixture.State.Healthy, apiservers.All...)
}

// tokens returns the tokens of the node's reporters, by path.
func (h *scenario) tokens() map[string][]byte {
	found := map[string][]byte{}
	for _, path := range h.reporterFiles("token") {
		token, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the kubelet may have removed a former pod's token
		}
		h.must(err)
		found[path] = token
	}
	return found
}

// reporterFiles returns the paths of all files with a name in volumes of reporters.
func (h *scenario) reporterFiles(name string) []string {
	var found []string
	for _, volume := range []string{"config", "credentials", "kms-health-config", "kms-health-credentials"} {
		paths, err := filepath.Glob(h.node().Path("/var/lib/kubelet/pods/*/volumes/*/" + volume + "/" + name))
		h.must(err)
		found = append(found, paths...)
	}
	return found
}

// awaitKubeconfigs waits until every reporter trusts this many CAs. A single one must not be the first.
func (h *scenario) awaitKubeconfigs(cas int) {
	first, _ := h.CAs()
	h.await(waitLimit, fmt.Sprintf("every reporter trusts %d CAs", cas), func() error {
		found := 0
		for _, path := range slices.Concat(h.reporterFiles("kubeconfig"), h.reporterFiles("ca.crt")) {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			trusted, err := cluster.CAs(content)
			if err != nil {
				return err
			}
			if len(trusted) == 0 {
				continue // this kubeconfig refers to a CA file
			}
			found++
			if len(trusted) != cas || cas == 1 && trusted[0] == string(first) {
				return fmt.Errorf("%s trusts %d", path, len(trusted))
			}
		}
		if found < 3 {
			return errors.New("fewer than three files with CAs")
		}
		return nil
	})
}
