package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// commands enables TestCommandsOfReadmeAndQuickstartsRun. `make verify` sets it.
var commands = flag.Bool("commands", false, "run the commands of README.md and of docs/quickstart")

// notHere are beginnings of commands that cannot run here, each with the reason.
var notHere = map[string]string{
	"make test":                       "make verify does not run all tests: continuous integration runs both",
	"make parity":                     "it takes minutes, and is evidence for a page, not a step for a reader",
	"make image":                      "it builds for four architectures, which takes minutes",
	"make image-push":                 "it needs a registry",
	"skopeo":                          "it needs two registries",
	"kind":                            "it needs a container engine",
	"oc ":                             "oc is OpenShift's",
	"sudo ":                           "it is for a node: TestKubeadm has one",
	"kubectl apply -k .":              "a kustomization of the reader's own: see TestSampleKustomizationsBuild",
	"kubectl apply -f openshift.yaml": "a file of a release",
}

// also has allowed exit codes other than 0, by the beginning of a command.
var also = map[string][]int{
	// No kubelet runs the operator, so there are no conditions: the state is unknown.
	"kubectl kms-health status":    {2},
	"kubectl kms-health preflight": {2},
}

var untilStop = regexp.MustCompile(`#.*until Ctrl-C`)

// session is a shell in a copy of the checkout, with its own home and /tmp.
type session struct {
	t        *testing.T
	dir      string
	env      []string
	done     map[string]bool // make commands that were run
	excepted map[string]bool // keys of notHere that a page has
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir := program.SocketDir(t)
	env, err := typed.Copy(t.Context(), dir)
	must.Succeed(t, err)
	return &session{t: t, dir: dir, env: env, done: map[string]bool{}, excepted: map[string]bool{}}
}

// runnable returns the commands of a page that can run here. make commands that were run before are omitted.
func (s *session) runnable(page string) (all []string) {
	for _, command := range typed.Commands(read(s.t, page)) {
		skip := false
		for beginning := range notHere {
			if strings.HasPrefix(command, beginning) {
				skip, s.excepted[beginning] = true, true
			}
		}
		plain, _, _ := strings.Cut(command, "#")
		plain = strings.TrimSpace(plain)
		if skip || s.done[plain] {
			continue
		}
		s.done[plain] = strings.HasPrefix(plain, "make ") && !strings.Contains(plain, "&")
		all = append(all, command)
	}
	return all
}

// follow types the commands of a page, in one shell.
func (s *session) follow(page, kubeconfig string) {
	s.t.Helper()
	script := "set -m -o pipefail\n"
	all := s.runnable(page)
	for i, command := range all {
		if untilStop.MatchString(command) {
			command = "timeout --preserve-status -s INT 3 " + command
		}
		command = strings.ReplaceAll(command, "/tmp/", s.dir+"/tmp/")
		script += fmt.Sprintf("%s\ncode=$?; echo \"=== $code %d\" >&3\n", command, i)
		if strings.HasSuffix(command, "&") {
			script += "sleep 1\n" // a person does not type faster
		}
	}
	codes, err := os.Create(filepath.Join(s.dir, "codes"))
	must.Succeed(s.t, err)
	defer func() { _ = codes.Close() }()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = filepath.Join(s.dir, "kms-health"), slices.Concat(s.env, []string{"KUBECONFIG=" + kubeconfig}), []*os.File{codes}
	out, err := cmd.CombinedOutput()
	s.t.Logf("%s:\n%s", page, out)
	raw, _ := os.ReadFile(codes.Name())
	ended := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(all) == 0 {
		return
	}
	if err != nil || len(ended) != len(all) {
		s.t.Fatalf("%s: %d of %d commands ran: %v", page, len(ended), len(all), err)
	}
	for i, command := range all {
		var code, at int
		if _, err := fmt.Sscanf(ended[i], "=== %d %d", &code, &at); err != nil || at != i {
			s.t.Fatal(ended[i], err)
		}
		var allowed []int
		for beginning, codes := range also {
			if strings.HasPrefix(command, beginning) {
				allowed = codes
			}
		}
		if code != 0 && !slices.Contains(allowed, code) {
			s.t.Errorf("%s: exit code %d: %s", page, code, command)
		}
	}
}

// The commands run exactly as in the pages, except for the folder /tmp.
func TestCommandsOfReadmeAndQuickstartsRun(t *testing.T) {
	if !*commands {
		t.Skip("it takes minutes: make verify ONLY=commands")
	}
	s := newSession(t)
	quickstarts, err := filepath.Glob("../../docs/quickstart/*.md")
	must.Succeed(t, err)
	pages := []string{"README.md"} // comes last, because it uses what a quickstart installs
	for _, path := range quickstarts {
		pages = slices.Insert(pages, len(pages)-1, "docs/quickstart/"+filepath.Base(path))
	}
	openshift := openShiftKubeconfig(t)
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			s, kubeconfig := *s, openshift
			s.t = t
			if page == "docs/quickstart/kubernetes.md" {
				kubeconfig = plainKubeconfig(t)
			}
			s.follow(page, kubeconfig)
		})
	}
	for beginning := range notHere {
		if !s.excepted[beginning] {
			t.Errorf("no page has %q", beginning)
		}
	}
}
