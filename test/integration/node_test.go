//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// Without the node's name, the condition has no name.
func TestMissingNodeNameIsInHealthMetricsAndLog(t *testing.T) {
	r := newReporter(t)
	r.node = ""
	r.plugin("1")
	r.configure(controlplane.KubeAPIServers, "1:Write")
	r.start()
	r.logged("Failed to write reports", "KMS_HEALTH_NODE", `result="no_node_name"`)
	r.writes("no_node_name")
	if _, view := r.get("/healthz?verbose"); !strings.Contains(view, "[-]write failed: the node has no name") {
		t.Errorf("/healthz?verbose: %s", view)
	}
	if n := r.count("KMS_HEALTH_NODE"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}
