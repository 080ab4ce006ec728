//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// home is the operator's namespace, as shipped.
const home = "openshift-kms-health"

// house is an operator with its configuration.
type house struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	config string
	args   []string
	more   []string // arguments that override
	ca     []byte   // of a server that stands before the API server
	before []string // what a sweep finds before it starts

	process *exec.Cmd
	ended   chan error
	log     *os.File
}

// newHouse does not start the operator yet. When the test ends, everything is
// taken back, and nothing may be left.
func newHouse(t *testing.T, args ...string) *house {
	t.Helper()
	h := &house{t: t, ctx: t.Context(), dir: t.TempDir(), args: args}
	h.config = filepath.Join(h.dir, "config.yaml")
	for _, found := range sweep(t, whatever) {
		h.before = append(h.before, found.text)
	}
	var err error
	if audit, err = cluster.AuditTail(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(h.dir, "operator.log"))
	if err != nil {
		t.Fatal(err)
	}
	h.log = log
	t.Cleanup(func() {
		h.kill(syscall.SIGKILL)
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			const most = 20000
			t.Logf("the operator's log ends:\n%s", text[max(0, len(text)-most):])
		}
		_ = log.Close()
	})
	return h
}

// configure puts a file in place, as a kubelet would not: by a rename.
func (h *house) configure(text string) {
	h.t.Helper()
	h.configureRaw("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n" + text)
}

func (h *house) configureRaw(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.config+".new", []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.config+".new", h.config); err != nil {
		h.t.Fatal(err)
	}
}

// start runs the operator, as its ServiceAccount.
func (h *house) start(server string) {
	h.t.Helper()
	h.run(h.credentials(server))
}

// credentials are a kubeconfig with a token of the operator's ServiceAccount.
func (h *house) credentials(server string) string {
	h.t.Helper()
	token, err := cluster.ServiceAccountToken(h.ctx, home, install.ServiceAccount, controlplane.TokenOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	kubeconfig, err := cluster.WriteKubeconfig(filepath.Join(h.dir, "credentials"), controlplane.Kubeconfig{
		Server: server, CA: h.ca, Credential: controlplane.Credential{Token: token},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return kubeconfig
}

func (h *house) run(kubeconfig string) {
	h.t.Helper()
	args := append([]string{
		"run", "--config", h.config, "--kubeconfig", kubeconfig, "--namespace", home, "--image", "reporter:1",
		"--metrics-bind-address", "0", "--health-bind-address", "0", "-v", "1",
	}, h.args...)
	if !slices.ContainsFunc(h.args, func(a string) bool { return strings.HasPrefix(a, "--leader-elect") }) {
		args = append(args, "--leader-elect=false")
	}
	h.process = exec.Command(binary, append(args, h.more...)...)
	h.process.Stdout, h.process.Stderr = h.log, h.log
	h.process.Env = append(os.Environ(), "IS_OPENSHIFT=true")
	if err := h.process.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.ended = make(chan error, 1)
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(h.process, h.ended)
}

// kill ends the operator, and waits for it.
func (h *house) kill(with syscall.Signal) {
	if h.process == nil {
		return
	}
	_ = h.process.Process.Signal(with)
	select {
	case err := <-h.ended:
		if with == syscall.SIGTERM && err != nil {
			h.t.Errorf("the operator ended by SIGTERM with %v", err)
		}
	case <-time.After(20 * time.Second):
		h.t.Error("the operator goes on after a signal")
		_ = h.process.Process.Kill()
		h.t.Logf("the operator, killed: %v", <-h.ended)
	}
	h.process = nil
}

// logged is what the operator has said.
func (h *house) logged() string {
	text, err := os.ReadFile(h.log.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(text)
}

// awaitLogged waits until the operator has said this so often.
func (h *house) awaitLogged(what, text string, times int) {
	h.t.Helper()
	eventually(h.t, what, func() error {
		if n := strings.Count(h.logged(), text); n < times {
			return fmt.Errorf("said %d times", n)
		}
		return nil
	})
}

// serving is where companions of kube-apiserver serve, a line of its target.
const serving = `serving: {address: "0.0.0.0:9180", secret: serving}`

// targets are those of a configuration.
func targets(all ...string) string { return "targets:\n" + strings.Join(all, "") }

// every is a configuration of an interval and targets.
func every(interval string, all ...string) string {
	return "probe: {interval: " + interval + "}\n" + targets(all...)
}

// openShiftAPIServer is its target, with more lines: our one target that is a
// Deployment.
func openShiftAPIServer(more ...string) string {
	return apiservers.OpenShift.Target(append([]string{"delivery: Deployment", "deployment: apiserver"}, more...)...)
}

// eventually waits until check finds nothing to complain of.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in time: %s: %v", what, err)
}

// setEncryption writes the live Secret of an API server, and those of revisions.
func setEncryption(t *testing.T, server apiservers.Server, text string, revisions ...string) {
	t.Helper()
	for _, revision := range append([]string{""}, revisions...) {
		applyObject(t, apiservers.Secrets, server.Namespace, apiservers.Secret(revision, text))
	}
}

// staticPod is kube-apiserver's, of one revision.
func staticPod(revision string, onHost bool) *corev1.Pod {
	p := apiservers.StaticPod(revision)
	if onHost {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}}
	}
	return p
}

// runStatic runs kube-apiserver's static pod on a node, and takes it away with
// the test.
func runStatic(t *testing.T, node string, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := workers.RunStaticPod(ctx, node, pod); err != nil {
		t.Fatal(err)
	}
}

func removeStatics(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, node := range nodeNames {
		if err := workers.RemoveStaticPod(ctx, node, "openshift-kube-apiserver", "kube-apiserver"); err != nil && !apierrors.IsNotFound(err) {
			t.Logf("remove a static pod: %v", err)
		}
	}
}

// report writes a node's condition, as a reporter that first wrote at a time.
func report(t *testing.T, server apiservers.Server, node string, since time.Time) {
	t.Helper()
	if err := server.Report(t.Context(), client, node, "[]", since); err != nil {
		t.Fatal(err)
	}
}
