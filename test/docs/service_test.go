package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

const byHandFolder = "../../docs/operate/by-hand/"

func readByHand(t *testing.T, name string) string {
	t.Helper()
	return string(disk.Read(t, byHandFolder+name))
}

// systemd-analyze accepts unknown capabilities, so the list is compared here.
func TestServiceRunsAsTheAPIServerWithItsFile(t *testing.T) {
	config, err := v1alpha1.DecodeReporter([]byte(readByHand(t, "service.yaml")))
	must.Succeed(t, err)
	unit := readByHand(t, "kms-health-reporter.service")
	credential := filepath.Base(config.Destination.Kubeconfig)
	for _, want := range []string{
		"CapabilityBoundingSet=CAP_" + contract.DACOverride,
		"Environment=\"" + contract.APIServerUserVariable + "=" + contract.User{DACOverride: true}.String() + "\"",
		"LoadCredential=" + credential + ":/etc/kms-health/kubeconfig",
		"NoNewPrivileges=yes",
		"ProtectSystem=strict",
	} {
		must.Equal(t, "number of lines "+want, strings.Count(unit, "\n"+want+"\n"), 1)
	}
	written := "/run/credentials/kms-health-reporter.service/" + credential // by systemd
	must.Equal(t, "the kubeconfig", config.Destination.Kubeconfig, written)
	// With these options the reporter would not see sockets that the API server can reach.
	if hidden := regexp.MustCompile(`(?m)^(PrivateTmp=yes|ProtectHome=yes|ProtectHome=tmpfs|InaccessiblePaths=.*)$`).FindString(unit); hidden != "" {
		t.Errorf("%s hides folders of the host", hidden)
	}
	if page := readByHand(t, "../by-hand.md"); !strings.Contains(page, "install -D -m 0644 service.yaml /etc/kms-health/config.yaml\n") {
		t.Error("the file is not installed for each User that the page lets one set: root reads the kubeconfig alone for it")
	}
	if strings.Count(unit, "CAP_") != 1 || !strings.HasPrefix(config.Serving.Address, "127.0.0.1:") {
		t.Errorf("more capabilities than one, or metrics beyond loopback: %s", config.Serving.Address)
	}
}

// Agents use the node's network, which does not resolve names of Services.
func TestByHandOnOpenShiftNamesServersThatANodeResolves(t *testing.T) {
	_, rest, _ := strings.Cut(readByHand(t, "../by-hand.md"), "\nOn OpenShift, ")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	sample, _, _ := strings.Cut(rest, "```\n")
	config, err := v1alpha1.DecodeOperator([]byte(strings.ReplaceAll(sample, "CLUSTER.DOMAIN", "c.example.com")))
	must.Succeed(t, err)
	config.Image = "kms-health-reporter"
	in := objects.Input{Config: config, Namespace: "kms-health", OpenShift: true, CA: disk.Read(t, "../testdata/ca.crt")}
	files, _, err := render.Render(render.Input{Input: in})
	must.Succeed(t, err)
	servers := ""
	for _, f := range files {
		for _, url := range regexp.MustCompile(`https://[^\s"]+`).FindAllString(string(f.Data), -1) {
			if servers += url + " "; strings.HasSuffix(url, ".svc") {
				t.Errorf("%s has %s", f.Name, url)
			}
		}
	}
	if !strings.Contains(servers, "https://api-int.") {
		t.Errorf("no second server: %s", servers)
	}
}

func TestServiceIsVerifiedBySystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("kms-health-reporter.service is not verified: %v (Debian: package systemd)", err)
	}
	program, err := os.Executable() // stands in for the reporter, which is not installed here
	must.Succeed(t, err)
	unit := strings.Replace(readByHand(t, "kms-health-reporter.service"), "/usr/local/bin/kms-health-reporter", program, 1)
	for name, tt := range map[string]struct {
		content string
		valid   bool
	}{
		"the unit is valid":       {unit, true},
		"a misspelt key is found": {strings.Replace(unit, "ProtectSystem=", "ProtectSystm=", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kms-health-reporter.service")
			disk.Write(t, path, []byte(tt.content))
			out, err := exec.Command("systemd-analyze", "verify", "--recursive-errors=yes", path).CombinedOutput()
			if valid := err == nil && len(out) == 0; valid != tt.valid {
				t.Errorf("valid: %t, want %t: %v\n%s", valid, tt.valid, err, out)
			}
		})
	}
}
