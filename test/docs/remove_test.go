package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

var byHand = regexp.MustCompile(`(?s)\n    for r in kubeapiservers .*?\n    done\n`)

// The page's commands must remove the conditions that a removed operator leaves.
func TestCommandsOfRemoveDeleteTheConditions(t *testing.T) {
	if !*commands {
		t.Skip("it starts an API server: make verify ONLY=commands")
	}
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("there is no jq")
	}
	kubeconfig := openShiftKubeconfig(t)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := install.Kubectl(t.Context(), nil, append([]string{"--kubeconfig", kubeconfig}, args...)...)
		must.Succeed(t, err)
		return string(out)
	}
	const types = `{range .status.conditions[*]}{.type} {end}`
	written := strings.Fields("KMSHealthReporter_master-0 NodeInstallerDegraded KMSHealthReporter_master-1.example.com KMSPluginsDegraded KmsHealthReportsDegraded KMSHealthReporting KMSWriteKeyAgreed")
	for i, name := range written {
		written[i] = `{"type": "` + name + `", "status": "True", "reason": "AsExpected", "message": "", "lastTransitionTime": "2026-05-08T12:34:56Z"}`
	}
	for _, r := range []string{"kubeapiservers", "openshiftapiservers"} { // authentications has no conditions here
		kubectl("patch", r, "cluster", "--subresource=status", "--type=merge", "-p", `{"status": {"conditions": [`+strings.Join(written, ",")+`]}}`)
	}
	command := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", byHand.FindString(read(t, "docs/operate/remove.md")))
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "patched") {
		t.Fatalf("%v: %s", err, out)
	}
	for r, want := range map[string]string{
		"kubeapiservers": "NodeInstallerDegraded KmsHealthReportsDegraded ", "openshiftapiservers": "NodeInstallerDegraded KmsHealthReportsDegraded ", "authentications": "",
	} {
		must.Equal(t, r, kubectl("get", r, "cluster", "-o", "jsonpath="+types), want)
	}
}
