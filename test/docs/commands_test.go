package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/manifests/install"
)

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// words are those of a command after its name, up to its end.
func words(command string) []string {
	all := strings.Fields(command)
	if end := slices.IndexFunc(all, func(w string) bool { return strings.ContainsAny(w[:1], "#|&;>(") }); end >= 0 {
		all = all[:end]
	}
	for i := range all {
		all[i] = strings.Trim(all[i], "`';,()")
	}
	return all
}

var (
	makeCommand = regexp.MustCompile(`(?:^|[;&(] *|sudo |^\$ )make +(.*)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][\w./ -]*):`)
	word        = regexp.MustCompile(`^[a-z][\w./-]*$`)
)

func TestMakeTargetsOfPagesExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		for _, name := range strings.Fields(m[1]) {
			targets[name] = true
		}
	}
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, m := range makeCommand.FindAllStringSubmatch(code, -1) {
				for _, name := range words(m[1]) {
					program, isProgram := strings.CutPrefix(name, "bin/")
					if isProgram {
						_, err := os.Stat(filepath.Join("../../cmd", program))
						isProgram = err == nil
					}
					if word.MatchString(name) && !targets[name] && !isProgram {
						t.Errorf("%s: make %s: no such target", p.path, name)
					}
				}
			}
		}
	}
}

var kustomization = regexp.MustCompile(` (?:-k|kustomize) +(\S+)`)

// The folder of a kustomization of the reader's own is `.`.
func TestKustomizationsOfPagesBuild(t *testing.T) {
	built := map[string]bool{}
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, m := range kustomization.FindAllStringSubmatch(code, -1) {
				overlay, err := filepath.Rel("manifests", strings.Trim(m[1], "`)"))
				if m[1] == "." || err == nil && built[overlay] {
					continue
				}
				built[overlay] = true
				if _, err := os.Stat(filepath.Join("../../manifests", overlay, "kustomization.yaml")); err != nil {
					t.Errorf("%s: %s: %v", p.path, code, err)
					continue
				}
				if os.Getenv("KUBEBUILDER_ASSETS") == "" {
					continue
				}
				if _, err := install.YAML(t.Context(), overlay); err != nil {
					t.Errorf("%s: %v", p.path, err)
				}
			}
		}
	}
	if len(built) == 0 {
		t.Error("no page applies a kustomization")
	}
}

// A kustomization of the reader's own, in a page, is beside a checkout named kms-health.
func TestSampleKustomizationsBuild(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "kms-health/manifests"), os.DirFS("../../manifests")); err != nil {
		t.Fatal(err)
	}
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

// ownConfiguration is in the reader's own file of the operator.
const ownConfiguration = "probe: {interval: 1m}"

// buildsSample builds a kustomization of the reader's own, with a file of the operator beside it.
func buildsSample(t *testing.T, dir string, p *page, kustomization string) (rendered string) {
	t.Helper()
	own := filepath.Join(dir, "own")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	config := read(t, "pkg/config/v1alpha1/operator-openshift.yaml") + ownConfiguration + "\n"
	for name, content := range map[string]string{"kustomization.yaml": kustomization, "operator.yaml": config} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
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

// The command that names the images is typed again for each upgrade, with another tag.
func TestTheCommandThatNamesTheImagesWorksAgain(t *testing.T) {
	const file = "manifests/components/images/kustomization.yaml"
	found := 0
	for _, p := range pages(t) {
		for _, code := range p.code {
			if !strings.HasPrefix(code, "sed -i ") || !strings.Contains(code, "newName: ") {
				continue
			}
			found++
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(read(t, file)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, tag := range []string{"v0", "v1"} {
				command := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(code, "v0", tag))
				command.Dir = dir
				if out, err := command.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", p.path, err, out)
				}
				raw, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"kms-health-operator", "kms-health-reporter"} {
					if image := "\n  newName: registry.example.com/team/" + name + "\n  newTag: " + tag + "\n"; strings.Count(string(raw), image) != 1 {
						t.Errorf("%s: not %q after %s: %s", p.path, image, tag, raw)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no page names the images")
	}
}

var (
	ownProgram = regexp.MustCompile(`(?:^|[\s/])(kms-health-reporter|kms-health-operator|(?:kubectl|oc) kms-health|kms-plugin)((?: .*|$))`)
	flagName   = regexp.MustCompile(`--[a-z][a-z-]+`)
)

// helps are the folder and the commands of each program.
var helps = map[string]struct {
	folder   string
	commands []string
}{
	"kms-health-reporter": {"cmd/kms-health-reporter", []string{""}},
	"kms-health-operator": {"cmd/kms-health-operator", []string{"", "run", "render", "validate", "print-defaults"}},
	"kubectl kms-health":  {"cmd/kubectl-kms_health", []string{"", "status"}},
	"kms-plugin":          {"test/kmsplugin/cmd/kms-plugin", []string{"", "ctl"}},
}

// help is what --help of a program's commands prints.
func help(t *testing.T, name string) string {
	t.Helper()
	binary, err := program.Build(t.TempDir(), helps[name].folder)
	if err != nil {
		t.Fatal(err)
	}
	text := " --help "
	for _, command := range helps[name].commands {
		out, err := exec.CommandContext(t.Context(), binary, strings.Fields(command+" --help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s --help: %v: %s", name, command, err, out)
		}
		text += string(out)
	}
	return text
}

func TestFlagsNamedAfterAProgramAreItsOwn(t *testing.T) {
	flags := map[string]string{}
	for name := range helps {
		flags[name] = help(t, name)
	}
	for _, p := range pages(t) {
		for _, code := range p.code {
			m := ownProgram.FindStringSubmatch(code)
			if m == nil {
				continue
			}
			name := strings.Replace(m[1], "oc ", "kubectl ", 1)
			for _, w := range words(m[2]) {
				flag := flagName.FindString(w)
				if strings.HasPrefix(w, "--") && !regexp.MustCompile(regexp.QuoteMeta(flag)+`\b`).MatchString(flags[name]) {
					t.Errorf("%s: %s has no flag %s", p.path, name, flag)
				}
			}
		}
	}
}
