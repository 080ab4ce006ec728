//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/docs/typed"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// onlySecrets encrypts only Secrets, as most kubeadm clusters do.
const onlySecrets = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: vault, endpoint: 'unix:///var/run/kmsplugin/kms-1.sock', timeout: 10s}
  - identity: {}
`

// administrator is an administrator of a node's cluster, with a shell in a copy of the checkout.
type administrator struct {
	*testing.T
	node *cluster.Node
	dir  string // contains the checkout
	env  []string
}

func (a *administrator) must(err error) {
	a.Helper()
	must.Succeed(a.T, err)
}

// between returns the part of a text between two texts, or up to its end.
func between(t *testing.T, text, before, after string) string {
	_, text, found := strings.Cut(text, before)
	if !found {
		t.Fatalf("no %q", before)
	}
	text, _, _ = strings.Cut(text, after)
	return text
}

// sectionOf returns a page's section with a heading.
func sectionOf(t *testing.T, page, heading string) string {
	return between(t, string(disk.Read(t, root+"/docs/"+page)), "\n## "+heading+"\n", "\n## ")
}

func startKubeadm(t *testing.T, apiServer string) *administrator {
	c, err := cluster.StartKubeadm(t.Context(), cluster.Options{Assets: os.Getenv("KUBEBUILDER_ASSETS"), Log: os.Stderr},
		apiServer, map[string][]byte{
			"/etc/kubernetes/enc/encryption-config.yaml": []byte(onlySecrets),
			fixture.HostPluginManifest:                   fixture.HostPlugin,
		})
	must.Succeed(t, err)
	ends(t, c.Stop)
	node := c.Nodes()[0]
	kubeconfig := disk.Read(t, node.Path(cluster.AdminConfig))
	a := newAdministrator(t, node, kubeconfig, c.Dir())
	t.Cleanup(func() {
		if t.Failed() {
			dir := filepath.Join(logsDir, t.Name())
			t.Logf("the node's logs are in %s: %v", dir, errors.Join(os.RemoveAll(dir), c.KeepLogs(dir)))
		}
	})
	return a
}

// newAdministrator returns an administrator with a copy of the checkout in the cluster's folder. The command oc is
// kubectl.
func newAdministrator(t *testing.T, node *cluster.Node, kubeconfig []byte, folder string) *administrator {
	a := &administrator{T: t, node: node, dir: filepath.Join(folder, "administrator")}
	var err error
	a.env, err = typed.Copy(t.Context(), a.dir)
	a.must(err)
	a.must(os.WriteFile(filepath.Join(a.dir, "kubeconfig"), kubeconfig, 0o600))
	a.must(os.Symlink(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), a.dir+"/user/.local/bin/oc"))
	// Builds on the pages must need only the module cache.
	a.env = append(a.env, "KUBECONFIG="+a.dir+"/kubeconfig", "GOPROXY=off")
	return a
}

// run runs a command: as root in the node if it begins with sudo, else as on another host in the node's network.
func (a *administrator) run(ctx context.Context, command string) (string, error) {
	if onNode, ok := strings.CutPrefix(command, "sudo "); ok {
		return a.node.Run(ctx, "bash", "-c", onNode)
	}
	cmd := exec.Command("bash", "-o", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = filepath.Join(a.dir, "kms-health"), a.env
	return a.node.RunOnHost(ctx, cmd)
}

func (a *administrator) types(command string) string {
	began := time.Now()
	out, err := a.run(a.Context(), command)
	a.Logf("%.1f s: $ %s", time.Since(began).Seconds(), command)
	if err != nil {
		a.Fatalf("%v\n%s", err, out)
	}
	return out
}

// quickstart is the page whose commands are typed.
const quickstart = "quickstart/kubernetes.md"

// follow types the commands of a quickstart section, except for the commands of kind.
func (a *administrator) follow(heading string) {
	for _, command := range typed.Commands(sectionOf(a.T, quickstart, heading)) {
		push := strings.HasPrefix(command, "make image-push ")
		switch {
		case strings.HasPrefix(command, "kind "), command == "make image":
			continue
		case push: // no registry: the images are built and imported instead
			command = strings.Replace(command, "image-push", "image ARCHITECTURES="+runtime.GOARCH, 1)
		}
		a.types(command)
		if push {
			for _, name := range []string{"operator", "reporter"} {
				a.must(a.node.Import(a.Context(), a.dir+"/kms-health/bin/images/kms-health-"+name+".tar"))
			}
		}
	}
}

// shows waits until a command's output matches a pattern, and logs it.
func (a *administrator) shows(limit time.Duration, command, pattern string) {
	began, out := time.Now(), ""
	err := wait.For(a.Context(), limit, command+" shows "+pattern, func(ctx context.Context) (err error) {
		out, err = a.run(ctx, command)
		if !regexp.MustCompile(pattern).MatchString(out) || out == "" && err != nil {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
	a.Logf("after %.1f s: $ %s\n%s", time.Since(began).Seconds(), command, out)
	a.must(err)
}

// storedKeys types the page's command for a kubeadm node.
func (a *administrator) storedKeys() {
	const page = "operate/stored-keys.md"
	plugin, err := os.ReadFile(filepath.Join(a.dir, "kms-health/bin/kubectl-kms_health"))
	a.must(err)
	a.must(a.node.WriteFile("/opt/kubectl-kms_health", plugin, 0o755))
	block := between(a.T, sectionOf(a.T, page, "How etcd is reached"), "\n    ", "\nOpenShift")
	out := a.types("sudo PATH=$PATH:/opt\n" + block)
	if !regexp.MustCompile(`secrets +kms:v2:vault `).MatchString(out) {
		a.Error("no Secrets of the provider vault")
	}
}

// losesArguments makes kubeadm write kube-apiserver's manifest without the arguments for KMS, and then with them.
func (a *administrator) losesArguments(apiServer string) {
	a.must(a.node.KubeadmAPIServer(a.Context(), ""))
	a.shows(11*time.Minute, status, `\(EncryptionNotConfigured\)`)
	a.must(a.node.KubeadmAPIServer(a.Context(), apiServer))
	a.shows(waitLimit, status, `^Healthy`)
}

// remove types the first step of docs/operate/remove.md.
func (a *administrator) remove() {
	first := between(a.T, string(disk.Read(a.T, root+"/docs/operate/remove.md")), "\n1. ", "\n2. ")
	for _, command := range typed.Commands(first) {
		command = strings.Replace(command, "openshift-kms-health", "kms-health", 1)
		if strings.Contains(command, " edit ") {
			const add = `/^    kind: OperatorConfiguration/a\    managementState: Removed`
			a.types(`KUBE_EDITOR="sed -i '` + add + `'" ` + command)
		} else {
			a.shows(waitLimit, command, `^$`)
		}
	}
}

// reset undoes kubeadm init. No container, manifest or pod may be left.
func (a *administrator) reset() {
	out, err := a.node.KubeadmReset(a.Context())
	a.Logf("$ kubeadm reset --force\n%s", out)
	a.must(err)
	containers, err := a.node.Containers(a.Context())
	a.must(err)
	if containers != "" {
		a.Errorf("containers are left: %s", containers)
	}
	for _, folder := range []string{"/etc/kubernetes/manifests", "/var/lib/kubelet/pods"} {
		if left, _ := os.ReadDir(a.node.Path(folder)); len(left) > 0 {
			a.Errorf("%s is not empty: %v", folder, left)
		}
	}
}

const status = "kubectl kms-health status"

// TestKubeadm types docs/quickstart/kubernetes.md on a node of `kubeadm init`.
func TestKubeadm(t *testing.T) {
	apiServer := between(t, sectionOf(t, quickstart, "kubeadm"), "```yaml\n", "```")
	a := startKubeadm(t, apiServer)
	a.follow("1. Name your plugins")
	a.follow("2. Build the images, and apply")
	a.shows(waitLimit, "kubectl get kmshealths --no-headers", `kube-apiserver +False +AsExpected +True +AsExpected`)
	a.types("kubectl -n kms-health rollout status deployment kms-health-operator --timeout=2m")
	a.follow("3. Check")
	a.storedKeys()
	a.env = append(a.env, "NS=kms-health", "KUBE_EDITOR=true")
	a.types("kubectl get kmshealths -o yaml >status.yaml")
	a.readsPages(reader{
		notHere: map[string]string{
			`get co\b`: "OpenShift's", `kubeapiservers`: "OpenShift's", `apiserver\.config`: "OpenShift's",
			`openshift-config-managed`: "OpenShift's", `stored-keys`: "storedKeys runs it on the node",
		},
		words: []string{"NAMESPACE NAME", "kms-health kms-health-operator", "NAMESPACE", "kube-system", "SELECTOR",
			"component=kube-apiserver", "RESOURCE cluster", "kmshealths kube-apiserver", "-n OLD", "-n kms-health",
			"openshift-kms-health", "kms-health"},
	})

	plugin := kmsplugin.Client(a.node.Path(fixture.HostPluginControl))
	_, err := plugin.Do("unhealthy", "vault is sealed")
	a.must(err)
	a.shows(waitLimit, status, `vault is sealed`)
	_, err = plugin.Do("heal")
	a.must(err)
	a.shows(waitLimit, status, `^Healthy`)

	if !testing.Short() {
		a.losesArguments(apiServer)
	}
	a.remove()
	a.follow("4. Remove")
	a.reset()
}
