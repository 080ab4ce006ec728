package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/harness/reporters"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

var (
	home      = install.Namespace(install.OpenShift) // the operator's namespace
	target    = apiservers.Kube.Namespace            // the API server's namespace
	nodeNames = []string{"master-0", "master-1", "master-2"}
)

// cluster simulates OpenShift, and runs the operator.
type cluster struct {
	ctx   context.Context
	dir   string
	tools string // folder of etcd, kube-apiserver, kubectl
	scene int    // number of the last title
	ends  []func() error

	*controlplane.ControlPlane
	kube     kubernetes.Interface
	client   dynamic.Interface
	workers  *nodes.Nodes
	admin    string // an administrator's kubeconfig
	operator *controlplane.Child
	plugins  map[string]*kmsplugin.Plugin // by node
}

func newCluster(ctx context.Context) (*cluster, error) {
	// The libraries' logs are hidden: they do not interest a viewer.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	// Not TMPDIR: a socket's path has at most 107 bytes, and with a pod's folders it comes close to that.
	dir, err := os.MkdirTemp("/tmp", "k")
	c := &cluster{ctx: ctx, dir: dir, tools: os.Getenv("KUBEBUILDER_ASSETS"), plugins: map[string]*kmsplugin.Plugin{}}
	c.atEnd(func() error { return os.RemoveAll(dir) })
	return c, err
}

func (c *cluster) atEnd(end func() error) { c.ends = append(c.ends, end) }

func (c *cluster) end() error {
	var errs []error
	for _, end := range slices.Backward(c.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// start starts the API and its nodes, and applies manifests/openshift without what only the operator's pods need. These
// are only simulated: the operator runs as a process, with another configuration file.
func (c *cluster) start() {
	var err error
	c.ControlPlane, err = controlplane.Start(c.ctx, controlplane.Options{
		Dir: c.path("cluster"), CRDs: controlplane.TechPreviewNoUpgrade,
	})
	must(err)
	c.atEnd(c.ControlPlane.Stop)
	must(c.ApplyOpenShiftConfig(c.ctx, controlplane.TechPreviewNoUpgrade))
	config := c.RESTConfig()
	c.kube = kubernetes.NewForConfigOrDie(config)
	c.client = dynamic.NewForConfigOrDie(config)
	c.admin = c.kubeconfig("admin", config.BearerToken)

	must(apiservers.CreateNamespaces(c.ctx, c.kube))
	objects, err := install.Render(c.ctx, install.OpenShift)
	must(err)
	must(install.Objects(c.ctx, config, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains([]string{"PodDisruptionBudget", "Service", "ConfigMap"}, o.GetKind())
	})...))
	must(c.StartControllerManager(c.ctx, controlplane.OperatorControllers...))
	c.atEnd(c.stopPlugins)
	c.workers, err = nodes.Start(c.ctx, config, nodeNames...)
	must(err)
	c.atEnd(func() error { c.workers.Stop(); return nil })
	must(os.Mkdir(c.path("reporters"), 0o700))
	running, err := reporters.Start(reporters.Options{
		Cluster: c.ControlPlane, Binary: program("kms-health-reporter"), Dir: c.path("reporters"), Sockets: c.path,
	})
	must(err)
	c.atEnd(func() error { running.Stop(); return nil })
}

// program returns the path of a program that the Makefile builds.
func program(name string) string {
	path, err := filepath.Abs(filepath.Join("bin", name))
	must(err)
	return path
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) kubeconfig(dir, token string) string {
	path, err := c.WriteKubeconfig(c.path(dir), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	must(err)
	return path
}

// setEncryption writes the live Secret, then the revision's Secret, like OpenShift's kube-apiserver operator.
func (c *cluster) setEncryption(revision string, providers ...string) {
	for _, r := range []string{"", revision} {
		must(apiservers.Apply(c.ctx, c.client, "kube-apiserver-operator", apiservers.Secrets, target,
			apiservers.Secret(r, apiservers.Encryption(providers...))))
	}
}

// roll rolls out a revision of kube-apiserver's static pods, with the plugin of key 1 or without. The plugins share
// their state, as nodes share a remote key.
func (c *cluster) roll(revision string, encrypted bool) {
	must(c.stopPlugins())
	for _, node := range nodeNames {
		pod := apiservers.StaticPod(revision)
		if encrypted {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: "kms-plugin-1", Image: "kms-plugin:demo", VolumeMounts: pod.Spec.Containers[0].VolumeMounts,
				Args: []string{"--endpoint=unix:///var/run/kmsplugin/kms-1.sock"},
			})
		} else {
			pod.Spec.Containers[0].VolumeMounts, pod.Spec.Volumes = nil, nil
		}
		_, err := c.workers.RunStaticPod(c.ctx, node, pod)
		must(err)
		if !encrypted {
			continue
		}
		must(os.MkdirAll(c.path(node), 0o700))
		p, err := kmsplugin.Start(kmsplugin.Options{
			Endpoint: "unix://" + filepath.Join(c.path(node), "kms-1.sock"), StateDir: c.path("vault"), Control: c.control(node),
		})
		must(err)
		c.plugins[node] = p
	}
}

func (c *cluster) stopPlugins() error {
	var errs []error
	for _, p := range c.plugins {
		errs = append(errs, p.Close())
	}
	clear(c.plugins)
	return errors.Join(errs...)
}

// control returns the path of the control socket of a node's plugin.
func (c *cluster) control(node string) string { return filepath.Join(c.path(node), "control") }

// configure replaces the operator's file.
func (c *cluster) configure(text string) {
	file := c.path("operator.yaml")
	must(errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
}

// startOperator runs the operator as its ServiceAccount.
func (c *cluster) startOperator() {
	lasts := controlplane.TokenOptions{Lifetime: 24 * time.Hour}
	token, err := c.ServiceAccountToken(c.ctx, home, install.ServiceAccount, lasts)
	must(err)
	c.operator, err = controlplane.StartChild("the operator", program("kms-health-operator"), nil, []string{
		"start", "--config", c.path("operator.yaml"), "--kubeconfig", c.kubeconfig("operator", token), "--namespace", home,
		"--image", "kms-health-reporter:demo", "--leader-elect=true", "--metrics-bind-address=0", "--health-bind-address=0",
		"--degraded-inertia=" + inertia.String(),
	}, c.path("operator.log"))
	must(err)
	c.atEnd(c.operator.End)
	c.note("$ kms-health-operator start --config operator.yaml …     # process %d, as ServiceAccount %s/%s",
		c.operator.PID(), home, install.ServiceAccount)
}

// kubectl shows a command, runs it, shows its output, and requires an exit code.
func (c *cluster) kubectl(code int, args ...string) {
	text := commandLine(args)
	c.note("$ %s", text)
	output, exit, err := c.run(args...)
	if exit != code {
		must(fmt.Errorf("%s: exit code %d, must be %d: %w\n%s", text, exit, code, err, output))
	}
	c.text(string(output))
}

// run runs kubectl, and returns what it prints and its exit code.
func (c *cluster) run(args ...string) (output []byte, exit int, err error) {
	cmd := exec.CommandContext(c.ctx, filepath.Join(c.tools, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "PATH="+c.searchPath()+":"+os.Getenv("PATH"))
	output, err = cmd.CombinedOutput()
	return output, cmd.ProcessState.ExitCode(), err
}

// searchPath returns the folders of kubectl and of its plugin, for PATH.
func (c *cluster) searchPath() string {
	return c.tools + ":" + filepath.Dir(program("kubectl-kms_health"))
}

// commandLine returns a kubectl command with the quotes of a shell.
func commandLine(args []string) string {
	words := []string{"kubectl"}
	for _, a := range args {
		if strings.ContainsAny(a, `{}"'\[]*|<>&; `) {
			a = fmt.Sprintf("'%s'", a)
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// logs returns the last lines of the logs of the operator and the reporters.
func (c *cluster) logs() string {
	paths, _ := filepath.Glob(c.path("reporters/*.*")) // fails only for a bad pattern
	output, _ := exec.Command("tail", append([]string{"-n", "12", c.path("operator.log")}, paths...)...).CombinedOutput()
	return string(output)
}
