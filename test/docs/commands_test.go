package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

func read(t *testing.T, path string) string {
	t.Helper()
	return string(disk.Read(t, filepath.Join("../..", path)))
}

var (
	makeTarget    = regexp.MustCompile(`(?:^|[;&(] *|sudo )make ([a-z][a-z0-9-]*)(?:[ ;)]|$)`)
	kustomization = regexp.MustCompile(` (?:-k|kustomize) +(manifests[\w/-]*)`)
	ownProgram    = regexp.MustCompile(`(?:^|[\s/])(kms-health-reporter|kms-health-operator|kubectl kms-health|kms-plugin) ([^#|&;>]*)`)
	flagName      = regexp.MustCompile(`--([a-z][a-z-]+)`)
)

// Commands of the README and of the quickstarts are also run: see TestCommandsOfReadmeAndQuickstartsRun.
func TestWhatCommandsOfPagesNameExists(t *testing.T) {
	sources := map[string]string{"kubectl kms-health": `"context" "kubeconfig" "namespace"`} // flags that kubectl also has
	tree(t, func(path string, content func() string) {
		for program, folder := range map[string]string{
			"kms-health-reporter": "cmd/kms-health-reporter/", "kms-health-operator": "cmd/kms-health-operator/",
			"kubectl kms-health": "cmd/kubectl-kms_health/", "kms-plugin": "test/kmsplugin/cmd/",
		} {
			if strings.HasPrefix(path, folder) && filepath.Ext(path) == ".go" {
				sources[program] += content()
			}
		}
	})
	makefile := read(t, "Makefile")
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, m := range makeTarget.FindAllStringSubmatch(code, -1) {
				if !regexp.MustCompile(`(?m)^([a-z0-9-]+ )*` + m[1] + `( [a-z0-9-]+)*:`).MatchString(makefile) {
					t.Errorf("%s: make %s: no such target", p.path, m[1])
				}
			}
			for _, m := range kustomization.FindAllStringSubmatch(code, -1) {
				if _, err := os.Stat(filepath.Join("../..", m[1], "kustomization.yaml")); err != nil {
					t.Errorf("%s: %s: %v", p.path, code, err)
				}
			}
			for _, m := range ownProgram.FindAllStringSubmatch(code, -1) {
				for _, flag := range flagName.FindAllStringSubmatch(m[2], -1) {
					if !strings.Contains(sources[m[1]]+`"help" "version"`, `"`+flag[1]+`"`) {
						t.Errorf("%s: %s has no flag --%s", p.path, m[1], flag[1])
					}
				}
			}
		}
	}
}

// The pages' sample kustomizations are in a folder next to a checkout named kms-health.
func TestSampleKustomizationsBuild(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(dir, "kms-health/manifests"), os.DirFS("../../manifests")))
	samples := 0
	for _, p := range pages(t) {
		i := slices.IndexFunc(p.blocks, func(block string) bool { return strings.HasPrefix(block, "# kustomization.yaml") })
		if i < 0 {
			continue
		}
		samples++
		if os.Getenv("KUBEBUILDER_ASSETS") == "" {
			t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
		}
		buildsSample(t, dir, p, p.blocks[i])
		for _, block := range p.blocks {
			if strings.HasPrefix(block, "# added to kustomization.yaml") && !strings.Contains(buildsSample(t, dir, p, p.blocks[i]+block), ownConfiguration) {
				t.Errorf("%s: what is added does not change the configuration: %s", p.path, block)
			}
		}
	}
	if samples == 0 {
		t.Error("no page has a kustomization")
	}
}

// A reader may follow a quickstart again, for example for an upgrade, or continue with a kustomization. The commands
// must work in a checkout in which they were typed before.
func TestCheckoutOfAQuickstartCanBeUsedAgain(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(dir, "kms-health/manifests"), os.DirFS("../../manifests")))
	for _, command := range slices.Repeat(typed.Commands(read(t, "docs/quickstart/kubernetes.md")), 2) {
		if !strings.HasPrefix(command, "sed -i") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Dir = filepath.Join(dir, "kms-health")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	out, err := install.Kubectl(t.Context(), nil, "kustomize", filepath.Join(dir, "kms-health/manifests/kubernetes"))
	if n := strings.Count(string(out), "registry.example.com/team/"); err != nil || n != 2 {
		t.Errorf("%d of 2 images: %v", n, err)
	}
	p := pages(t)["docs/operate/install.md"]
	i := slices.IndexFunc(p.blocks, func(block string) bool { return strings.HasPrefix(block, "# kustomization.yaml") })
	own := strings.ReplaceAll(p.blocks[i], "manifests/openshift ", "manifests/kubernetes ")
	if out := buildsSample(t, dir, p, own); strings.Contains(out, "registry.example.com") {
		t.Errorf("an image of the quickstart is left:\n%s", out)
	}
}

// ownConfiguration is a line in the reader's file for the operator.
const ownConfiguration = "probe: {interval: 1m}"

// buildsSample builds a sample kustomization with an operator's file next to it.
func buildsSample(t *testing.T, dir string, p *page, kustomization string) (rendered string) {
	t.Helper()
	own := filepath.Join(dir, "own")
	must.Succeed(t, os.MkdirAll(own, 0o755))
	config := read(t, "pkg/config/v1alpha1/operator-openshift.yaml") + ownConfiguration + "\n"
	for name, content := range map[string]string{"kustomization.yaml": kustomization, "operator.yaml": config} {
		disk.Write(t, filepath.Join(own, name), []byte(content))
	}
	out, err := install.Kubectl(t.Context(), nil, "kustomize", own)
	if err != nil {
		t.Errorf("%s: %v", p.path, err)
	}
	if strings.Contains(string(out), "registry.invalid") {
		t.Errorf("%s: the sample leaves an image of registry.invalid", p.path)
	}
	return string(out)
}
