//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// pagesOfRunningClusters are pages with commands for a cluster on which kms-health runs.
var pagesOfRunningClusters = []string{
	"operate/runbooks.md", "operate/troubleshooting.md", "operate/install.md", "operate/upgrade.md", "operate/remove.md",
	"operate/stored-keys.md", "reference/conditions.md", "reference/contract.md", "reference/kubectl.md",
	"reference/manifests.md",
}

// notHere are patterns of commands that cannot run on a cluster of these tests, each with the reason.
var notHere = map[string]string{
	`kubectl describe$`: "what to describe is in the condition's message",
	`operator render$`:  "with the flags of by-hand.md",
	`^make `:            "TestKubeadm builds as the pages say",
	`kubectl \w+ -k`:    "a kustomization of the reader's: TestKubeadm and TestSampleKustomizationsBuild",
	`openshift\.yaml`:   "a file of a release",
	`kubernetes\.yaml`:  "a file of a release",
	`viewer\.yaml`:      "the page's own sample",
	`must-gather`:       "kubectl has no adm",
	`oc adm inspect`:    "kubectl has no adm",
	`openshift-etcd`:    "etcd is no pod of OpenShift's",
	`--cacert`:          "TestKubeadm runs it on the node",
	`kubectl delete `:   "other parts need what it deletes: TestCommandsOfRemoveDeleteTheConditions",
	`kubectl get \$r`:   "a line of a loop: TestCommandsOfRemoveDeleteTheConditions",
	`kubectl patch \$r`: "a line of a loop: TestCommandsOfRemoveDeleteTheConditions",
}

// reader adapts the pages' commands to a cluster.
type reader struct {
	notHere map[string]string // more patterns
	words   []string          // placeholders, each with its value; longer ones first
}

// administrator returns an administrator who has installed the kubectl plugin.
func (h *scenario) administrator() *administrator {
	kubeconfig, err := h.Kubeconfig("https://127.0.0.1:6443")
	h.must(err)
	a := newAdministrator(h.t, h.node(), kubeconfig, h.Dir())
	a.types("make build && install bin/kubectl-kms_health ~/.local/bin/")
	a.env = append(a.env, "NS="+fixture.Home, "KUBE_EDITOR=true")
	return a
}

// testCommands runs the commands of pages, with placeholders replaced, and the commands that `status` prints as next.
func testCommands(h *scenario) {
	a := h.administrator()
	a.types("kubectl get kubeapiservers,openshiftapiservers,authentications -o yaml >status.yaml")
	key := h.remoteKey(h.node())
	a.readsPages(reader{
		notHere: map[string]string{`kubectl get kmshealths`: "a resource of clusters without OpenShift: TestKubeadm"},
		words: []string{"NAMESPACE NAME", apiservers.OpenShift.Namespace + " apiserver",
			"NAMESPACE", apiservers.OpenShift.Namespace, "SELECTOR", "apiserver=true",
			"RESOURCE", apiservers.Kube.Resource, "-n OLD", "-n " + fixture.Home,
			"KEY_ID", key, "KEK_ID", key, "FORMER", key, "stored-keys", "stored-keys --endpoints http://127.0.0.1:2379"},
	})
	for _, server := range apiservers.All {
		plugin := h.pluginOf(server)
		h.do(plugin, "unhealthy", "vault is sealed")
		h.nextOf(a, server.Name, contract.PluginUnhealthy)
		h.do(plugin, "heal")
		h.awaitHealthy(server)
	}
	valid := a.types(`kubectl -n $NS get configmap kms-health-operator-config -o jsonpath='{.data.config\.yaml}'`)
	h.must(h.Configure(h.ctx, "probe: {interval: 1 second}\n"))
	h.nextOf(a, "a rejected file", contract.ConfigurationInvalid)
	h.must(h.Configure(h.ctx, valid))
	a.types("kubectl -n $NS scale deployment kms-health-operator --replicas=0")
	h.nextOf(a, "no operator", "NotRunning")
	a.types("kubectl -n $NS scale deployment kms-health-operator --replicas=1")
	h.must(h.AwaitOperator(h.ctx))
	a.shows(waitLimit, status, "^Healthy")
}

// readsPages runs the commands of the pages for a running cluster, and checks the exit codes. Each pattern in notHere
// must match a command.
func (a *administrator) readsPages(r reader) {
	reporter := a.types("kubectl -n $NS get pods -l app.kubernetes.io/name=kms-health-reporter " +
		"-o jsonpath='{.items[0].metadata.name}'")
	words := strings.NewReplacer(append(r.words, "explain NAME", "explain PluginUnhealthy", "master-1", a.node.Name,
		"NODE", a.node.Name, "POD", reporter, "PATH", "status.yaml", "FILE", "operator.yaml")...)
	unused := map[string]string{}
	maps.Copy(unused, notHere)
	maps.Copy(unused, r.notHere)
	skipped := maps.Clone(unused)
	for _, page := range pagesOfRunningClusters {
		content, err := os.ReadFile(root + "/docs/" + page)
		a.must(err)
		for _, command := range typed.Commands(string(content)) {
			skip := false
			for part := range skipped {
				if regexp.MustCompile(part).MatchString(command) {
					skip = true
					delete(unused, part)
				}
			}
			if !skip {
				a.exits(page, words.Replace(command))
			}
		}
	}
	for part, why := range unused {
		a.Errorf("no command matches %q (%s)", part, why)
	}
}

// mayExit reports whether a command of a page may end with an exit code other than 0.
func mayExit(command string, code int) bool {
	for part, may := range map[string]int{
		"--kek-id":  1, // the key is in use
		"preflight": 2, // API servers agree on a key after 3 minutes
	} {
		if strings.Contains(command, part) && code == may {
			return true
		}
	}
	return false
}

// exits runs a command of a page, and requires exit code 0 or an allowed one. A command that shows the state is
// repeated until it does: reports that are written each second are stale when a machine stalls for 4 s. Only an error
// has the output: in the log of all outputs, of thousands of lines, it is not found.
func (a *administrator) exits(page, command string) {
	began := time.Now()
	shows := strings.Contains(command, "kms-health status") || strings.Contains(command, "kms-health preflight")
	err := wait.For(a.Context(), waitLimit, page+": "+command, func(context.Context) error {
		out, err := a.run(a.Context(), command)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && mayExit(command, exit.ExitCode()) {
			return nil
		}
		switch {
		case err == nil:
			return nil
		case shows:
			return fmt.Errorf("%w:\n%s", err, out)
		}
		return wait.Final(fmt.Errorf("%w:\n%s", err, out))
	})
	a.Logf("%.1f s: %s: $ %s", time.Since(began).Seconds(), page, command)
	if err != nil {
		a.Error(err)
	}
}

// nextOf waits until status has a problem with a reason, and runs the commands that it prints as next.
func (h *scenario) nextOf(a *administrator, what, reason string) {
	var next []string
	h.await(time.Minute, what+": status has "+reason, func() error {
		out, err := a.run(h.ctx, "kubectl kms-health status -o json || true")
		var got struct {
			Problems []struct{ Reason, Next string }
		}
		if err := errors.Join(err, json.Unmarshal([]byte(out), &got)); err != nil {
			return err
		}
		next, err = nil, errors.New(out)
		for _, p := range got.Problems {
			if p.Next != "" {
				next = append(next, p.Next)
			}
			if p.Reason == reason {
				err = nil
			}
		}
		return err
	})
	if len(next) == 0 {
		h.t.Errorf("%s: status prints no command", what)
	}
	for _, command := range next {
		if out := a.types(command); out == "" && !strings.Contains(command, " edit ") {
			h.t.Errorf("%s: %s prints nothing", what, command)
		}
	}
}
