//go:build integration

package commands

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

const repository = "../../.."

// byKubectl is the command for hosts without oc.
const byKubectl = "! command -v oc && bash manifests/must-gather/gather"

// A must-gather of a real API server must give the status of its cluster: of a healthy cluster with the documented
// command, and of one with faults with the script itself.
func TestAMustGatherHasTheStatusOfItsCluster(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=2s", "--leader-elect=true")
	kubectl := fixture.NewKubectl(t)
	reporters := fixture.StartReporting(t, op, nil, fixture.Steady.String())
	op.Configure(fixture.Every("2s", apiservers.Kube.Target()))
	fixture.AwaitClusterOperator(t, "True False False True")
	must.Equal(t, "exit code of a healthy cluster", expectSameStatus(t, kubectl, documentedCommand(t), "-c"), 0)

	must.Succeed(t, reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}))
	reporters[2].Kill(t)
	op.Configure(fixture.Every("4s", apiservers.Kube.Target()))
	fixture.AwaitClusterOperator(t, "True False True False")
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, operatorstatus.False, contract.ReporterStale)
	scale := func(replicas int) {
		if out, code := kubectl("scale", "-n", fixture.Namespace, "deployment/kms-health-operator", fmt.Sprintf("--replicas=%d", replicas)); code != 0 {
			t.Fatal(out)
		}
	}
	t.Cleanup(func() { // other tests use the same cluster
		scale(2)
		if out, code := kubectl("rollout", "status", "-n", fixture.Namespace, "deployment/kms-health-operator", "--timeout=2m"); code != 0 {
			t.Error(out)
		}
	})
	scale(0)
	must.Equal(t, "exit code with faults", expectSameStatus(t, kubectl, "manifests/must-gather/gather"), 1)
	withoutOC := "PATH=$KUBEBUILDER_ASSETS:/usr/bin:/bin; " + byKubectl
	must.Equal(t, "exit code with faults, gathered without oc", expectSameStatus(t, kubectl, withoutOC, "-c"), 1)
	must.Succeed(t, reporters[1].Plugin.ClearFaults())
}

// documentedCommand returns the command in the page about must-gathers. oc would run it in a pod.
func documentedCommand(t *testing.T) string {
	t.Helper()
	page := disk.Read(t, filepath.Join(repository, "docs/operate/must-gather.md"))
	for line := range strings.Lines(string(page)) {
		if command := strings.TrimSpace(line); strings.HasPrefix(line, "    oc adm must-gather -- ") {
			return command
		}
	}
	t.Fatal("the page has no command")
	return ""
}

// expectSameStatus compares the status of the cluster with the status from its must-gather, and returns the exit code
// of status. It gathers again if the cluster changed meanwhile.
func expectSameStatus(t *testing.T, kubectl func(...string) (string, int), command string, flags ...string) (code int) {
	t.Helper()
	var offline int
	fixture.Eventually(t, "the status of a must-gather is that of its cluster", func() error {
		before, _ := status(t, kubectl)
		dir := gather(t, os.Getenv("KUBEBUILDER_ASSETS")+"/kubectl", append(flags, command)...)
		gathered, ofGathered := status(t, kubectl, "--from-file", dir)
		live, ofLive := status(t, kubectl)
		code, offline = ofLive, ofGathered
		if diff := cmp.Diff(before, live); diff != "" {
			return fmt.Errorf("the cluster changes: %s", diff)
		}
		if diff := cmp.Diff(live, gathered); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		expectNoSecret(t, dir)
		incomplete := "metrics in Prometheus\n" // the cluster has no Prometheus
		if strings.HasSuffix(command, byKubectl) {
			incomplete = "logs, Events, policies, ClusterRoles and other namespaces: gathered by oc, on OpenShift alone\n" + incomplete
		}
		must.Equal(t, "incomplete", read(t, filepath.Join(dir, "kms-health/incomplete.txt")), incomplete)
		if version := read(t, filepath.Join(dir, "version")); !strings.HasPrefix(version, "kms-health\n") || strings.Count(version, "\n") != 2 {
			t.Errorf("version: %q", version)
		}
		t.Logf("%+v", live)
		return nil
	})
	must.Equal(t, "exit code of the must-gather", offline, code)
	return code
}

// judged is the part of a status that does not change with each report.
type judged struct {
	Verdict  string
	Problems []struct {
		Reason, APIServer, KeyID, Summary, Detail string
		Nodes                                     []string
	}
	APIServers []struct {
		Name    string
		Plugins []struct{ Node, KeyID, State, KEKID string }
	}
	Operator struct{ State, Namespace, Version string }
}

func status(t *testing.T, kubectl func(...string) (string, int), args ...string) (s judged, code int) {
	t.Helper()
	out, code := kubectl(append([]string{"kms-health", "status", "-o", "json"}, args...)...)
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&s); err != nil {
		t.Fatalf("%d, %v: %s", code, err, out)
	}
	return s, code
}

// gather runs bash with these arguments and the simulated oc, and returns the folder with the result.
func gather(t *testing.T, kubectl string, args ...string) string {
	t.Helper()
	path, err := filepath.Abs("testdata")
	must.Succeed(t, err)
	dir := filepath.Join(t.TempDir(), "must-gather")
	kubeconfig := fixture.Cluster.AdminKubeconfig(t)
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"), "KUBECTL="+kubectl, "KUBECONFIG="+kubeconfig, "MUST_GATHER_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func expectNoSecret(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(read(t, path), "kind: Secret") {
			t.Errorf("%s has a Secret", path)
		}
		return err
	})
	must.Succeed(t, err)
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(disk.Read(t, path))
}

// Each step that fails is named, the other steps run, and oc adm must-gather does not fail.
func TestAMustGatherOfNothingNamesWhatFailed(t *testing.T) {
	dir := gather(t, "false", "manifests/must-gather/gather")
	if failed := read(t, filepath.Join(dir, "kms-health/incomplete.txt")); strings.Count(failed, "\n") != 12 || !strings.Contains(failed, "metrics of kube-apiserver\n") {
		t.Errorf("%q", failed)
	}
	if _, err := os.Stat(filepath.Join(dir, "kms-health/kube-apiserver.metrics")); err == nil {
		t.Error("metrics that could not be read are there")
	}
	bin := t.TempDir()
	must.Succeed(t, os.Symlink("/bin/false", filepath.Join(bin, "kubectl")))
	dir = gather(t, "false", "-c", "PATH="+bin+":/usr/bin:/bin; "+byKubectl)
	if failed := read(t, filepath.Join(dir, "kms-health/incomplete.txt")); strings.Count(failed, "\n") != 25 || !strings.Contains(failed, "the list of resources") {
		t.Errorf("%q", failed)
	}
}
