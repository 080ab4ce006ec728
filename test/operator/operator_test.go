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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// operatorNamespace is the operator's namespace, as shipped.
const operatorNamespace = "openshift-kms-health"

// operatorProcess is an operator, run as a process, with its configuration.
type operatorProcess struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	config string
	args   []string
	more   []string // arguments that override
	server string   // that proxies the API server; empty: the API server
	ca     []byte   // of that one
	before []string // what a sweep finds before it starts

	process *exec.Cmd
	ended   chan error
	log     *os.File
}

// newOperator does not start the operator yet. When the test ends, everything is
// removed, and nothing may be left.
func newOperator(t *testing.T, args ...string) *operatorProcess {
	t.Helper()
	op := &operatorProcess{t: t, ctx: t.Context(), dir: t.TempDir(), args: args}
	op.config = filepath.Join(op.dir, "config.yaml")
	for _, found := range sweep(t, anyKind) {
		op.before = append(op.before, found.text)
	}
	var err error
	if audit, err = cluster.AuditTail(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(op.dir, "operator.log"))
	if err != nil {
		t.Fatal(err)
	}
	op.log = log
	t.Cleanup(func() {
		op.kill(syscall.SIGKILL)
		op.releaseLease()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			const most = 20000
			t.Logf("the operator's log ends:\n%s", text[max(0, len(text)-most):])
		}
		_ = log.Close()
	})
	return op
}

// releaseLease deletes the lease, which the next operator would wait for if this one was
// killed.
func (op *operatorProcess) releaseLease() {
	leases := kube.CoordinationV1().Leases(operatorNamespace)
	if err := leases.Delete(context.WithoutCancel(op.t.Context()), "kms-health-operator", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		op.t.Errorf("release the lease: %v", err)
	}
}

// configure puts a file in place, as a kubelet would not: by a rename.
func (op *operatorProcess) configure(text string) {
	op.t.Helper()
	op.configureRaw("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n" + text)
}

func (op *operatorProcess) configureRaw(text string) {
	op.t.Helper()
	if err := os.WriteFile(op.config+".new", []byte(text), 0o600); err != nil {
		op.t.Fatal(err)
	}
	if err := os.Rename(op.config+".new", op.config); err != nil {
		op.t.Fatal(err)
	}
}

// start runs the operator, as its ServiceAccount.
func (op *operatorProcess) start(server string) {
	op.t.Helper()
	if server == "" {
		server = op.server
	}
	op.run(op.credentials(server))
}

// credentials are a kubeconfig with a token of the operator's ServiceAccount.
func (op *operatorProcess) credentials(server string) string {
	op.t.Helper()
	token, err := cluster.ServiceAccountToken(op.ctx, operatorNamespace, install.ServiceAccount, controlplane.TokenOptions{})
	if err != nil {
		op.t.Fatal(err)
	}
	kubeconfig, err := cluster.WriteKubeconfig(filepath.Join(op.dir, "credentials"), controlplane.Kubeconfig{
		Server: server, CA: op.ca, Credential: controlplane.Credential{Token: token},
	})
	if err != nil {
		op.t.Fatal(err)
	}
	return kubeconfig
}

func (op *operatorProcess) run(kubeconfig string) {
	op.t.Helper()
	args := append([]string{
		"run", "--config", op.config, "--kubeconfig", kubeconfig, "--namespace", operatorNamespace, "--image", "reporter:1",
		"--metrics-bind-address", "0", "--health-bind-address", "0", "-v", "1",
	}, op.args...)
	if !slices.ContainsFunc(op.args, func(a string) bool { return strings.HasPrefix(a, "--leader-elect") }) {
		args = append(args, "--leader-elect=false")
	}
	op.process = exec.Command(binary, append(args, op.more...)...)
	op.process.Stdout, op.process.Stderr = op.log, op.log
	op.process.Env = append(os.Environ(), "IS_OPENSHIFT=true")
	if err := op.process.Start(); err != nil {
		op.t.Fatal(err)
	}
	op.ended = make(chan error, 1)
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(op.process, op.ended)
}

// kill ends the operator, and waits for it.
func (op *operatorProcess) kill(with syscall.Signal) {
	if op.process == nil {
		return
	}
	_ = op.process.Process.Signal(with)
	select {
	case err := <-op.ended:
		if with == syscall.SIGTERM && err != nil {
			op.t.Errorf("the operator ended by SIGTERM with %v", err)
		}
	case <-time.After(20 * time.Second):
		op.t.Error("the operator goes on after a signal")
		_ = op.process.Process.Kill()
		op.t.Logf("the operator, killed: %v", <-op.ended)
	}
	op.process = nil
}

// logged is the operator's log.
func (op *operatorProcess) logged() string {
	text, err := os.ReadFile(op.log.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		op.t.Fatal(err)
	}
	return string(text)
}

// awaitLogged waits until the operator has logged a text a number of times.
func (op *operatorProcess) awaitLogged(what, text string, times int) {
	op.t.Helper()
	eventually(op.t, what, func() error {
		if n := strings.Count(op.logged(), text); n < times {
			return fmt.Errorf("logged %d times", n)
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

// eventually waits until check returns no error, in a cleanup too.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := wait.For(ctx, waitTimeout, what, func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
}

// setEncryption writes the live Secret of an API server, and those of revisions.
func setEncryption(t *testing.T, server apiservers.Server, text string, revisions ...string) {
	t.Helper()
	for _, revision := range append([]string{""}, revisions...) {
		applyObject(t, apiservers.Secrets, server.Namespace, apiservers.Secret(revision, text))
	}
}

// removeEncryption removes the encryption configs of an API server, of all revisions.
func removeEncryption(t *testing.T, server apiservers.Server) {
	t.Helper()
	secrets := kube.CoreV1().Secrets(server.Namespace)
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if strings.HasPrefix(s.Name, apiservers.EncryptionSecret) {
			if err := secrets.Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// plainPod is kube-apiserver's of a revision without KMS: there is no
// Secret of its revision, and no volume for sockets.
func plainPod(revision string) *corev1.Pod {
	pod := staticPod(revision, false)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}

// staticPod is kube-apiserver's, of one revision.
func staticPod(revision string, onHost bool) *corev1.Pod {
	p := apiservers.StaticPod(revision)
	if onHost {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}}
	}
	return p
}

// runStatic runs kube-apiserver's static pod on a node, without removing it.
func runStatic(t *testing.T, node string, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if _, err := workers.RunStaticPod(ctx, node, pod); err != nil {
		t.Fatal(err)
	}
}

func removeStatics(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
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
