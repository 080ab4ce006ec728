//go:build integration

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// An administrator runs preflight before each change. The reporters get the requests from the operator's files.
func TestPreflightShowsWhatDoesNotHold(t *testing.T) {
	op := fixture.NewOperator(t, "--leader-elect=true")
	reporters := fixture.StartReporting(t, op, nil, fixture.Steady.String())
	fixture.HandOnRequests(t, reporters)
	kubectl := fixture.NewKubectl(t)
	check := func(name string, code int, args string, want ...string) {
		t.Helper()
		began := time.Now()
		out, got := kubectl(append([]string{"kms-health", "preflight"}, strings.Fields(args)...)...)
		t.Logf("%s: exit code %d after %s\n%s", name, got, time.Since(began).Round(time.Second), out)
		must.Equal(t, name+": exit code", got, code)
		for _, text := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
				t.Errorf("%s: no %q", name, text)
			}
		}
	}
	fault := func(r *fixture.Reporter, name string, args ...string) {
		t.Helper()
		must.Succeed(t, r.Plugin.SetFault(kmsplugin.Fault{Name: name, Args: args}))
	}
	// The reporters have named the key for less than 180 s, so it is not known yet whether API servers write with it.
	check("good", 2, "kube-apiserver", "Not known: 6 of 7 checks hold.", "3 of 3 nodes made one", contract.Settling)
	asViewer, remove := documentedViewer(t, kubectl)
	check("no right", 2, asViewer+" --timeout=5s", `User "viewer" cannot patch resource "kubeapiservers"`, "still awaited: a new round trip")
	// A viewer may not read the operator's Deployment.
	out, code := kubectl(strings.Fields("kms-health status -o json " + asViewer)...)
	if code != 0 || !strings.Contains(out, `"state": "NotKnown"`) {
		t.Errorf("a viewer's status: exit code %d, %s", code, out)
	}
	remove()
	check("no operator", 2, "-n elsewhere --timeout=5s", "the operator is not installed")

	fault(reporters[1], kmsplugin.FaultRefuseDecrypt)
	check("Decrypt is refused", 1, "kube-apiserver", "3 of 3 nodes made one", "UNKNOWN Former keys", "FAILS No problem", "kube-apiserver on master-1, key 1: unhealthy")
	must.Succeed(t, reporters[1].Plugin.ClearFaults())
	fault(reporters[2], kmsplugin.FaultKeyID, "another")
	check("keys differ", 1, "kube-apiserver", "FAILS One KEK ID", "another on master-2", "Do not: delete or disable")
	reporters[0].Signal(t, syscall.SIGSTOP)
	// The other reporters wait 15 s between round trips.
	check("one node does not report", 1, "kube-apiserver --timeout=40s", "2 of 3 nodes made one; still awaited", "on master-0")
	reporters[0].Kill(t)
	now := time.Now()
	fixture.Report(t, apiservers.Kube, "master-0", now, contract.Entry{KeyID: "1", KEKID: "k", Status: contract.Healthy, LastChecked: now,
		Lost: []string{"former"}})
	check("a former key is lost", 1, "--timeout=5s", "FAILS Former keys: no longer decrypted: former on master-0", "Fix: ")
	fixture.RequestRoundTrip(t, apiservers.Kube, "")
}

// documentedViewer creates the documented ClusterRole for the documented group, and returns kubectl's flags for a user
// in that group.
func documentedViewer(t *testing.T, kubectl func(...string) (string, int)) (flags string, remove func()) {
	t.Helper()
	page := read(t, filepath.Join(repository, "docs/reference/kubectl.md"))
	_, block, found := strings.Cut(page, "# viewer.yaml\n")
	role, _, ended := strings.Cut(block, "```\n")
	file := filepath.Join(t.TempDir(), "viewer.yaml")
	if err := os.WriteFile(file, []byte(role), 0o600); err != nil || !found || !ended {
		t.Fatalf("%v, %q", err, role)
	}
	for _, args := range []string{"apply -f " + file,
		"create clusterrolebinding kms-health-viewer --clusterrole=kms-health-viewer --group=on-call"} {
		if out, code := kubectl(strings.Fields(args)...); code != 0 {
			t.Fatal(out)
		}
	}
	return "--as=viewer --as-group=on-call", func() { kubectl("delete", "clusterrole,clusterrolebinding", "kms-health-viewer") }
}
