// Command cluster shows kms-health-operator and its reporters at work on a real etcd,
// kube-apiserver and kube-controller-manager with OpenShift's CRDs: real processes, no root,
// no internet.
//
//	cluster [--stay]
//
// It ends with 0 only if everything that it showed is what happened.
package main

import (
	"errors"
	"io"
	"log/slog"
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

	"github.com/kms-health/kms-health/test/demo/script"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// socketVolume is short, for the sake of the sockets' paths.
const socketVolume = "kms"

// inertia is how long something must last until the ClusterOperator reports it.
const inertia = 3 * time.Second

var (
	home      = install.Namespace(install.OpenShift) // the operator's namespace
	target    = apiservers.Kube.Namespace            // that of the API servers
	nodeNames = []string{"master-0", "master-1", "master-2"}
)

// cluster is what OpenShift would be, and the operator.
type cluster struct {
	*script.Script
	tools string // folder of etcd, kube-apiserver, kubectl
	log   *os.File

	*controlplane.ControlPlane
	kube    kubernetes.Interface
	client  dynamic.Interface
	workers *nodes.Nodes
	admin   string // an administrator's kubeconfig

	plugins map[string][]io.Closer // by node: each with the control of it before it

	operator *script.Process
}

func newCluster(d *script.Script) *cluster {
	c := &cluster{Script: d, plugins: map[string][]io.Closer{}}
	var err error
	c.tools, err = filepath.Abs(os.Getenv("KUBEBUILDER_ASSETS"))
	d.Must(err)
	// What the libraries in this process log is for a demo that fails.
	path := filepath.Join(d.Dir, "demo.log")
	c.log, err = os.Create(path)
	d.Must(err)
	d.Logs = append(d.Logs, path, filepath.Join(d.Dir, "reporters", "*"))
	klog.LogToStderr(false)
	klog.SetOutput(c.log)
	d.AtEnd(func() error { klog.SetOutput(io.Discard); return c.log.Close() })
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return c
}

// start starts the API, its nodes, and applies the manifests.
func (c *cluster) startCluster() {
	var err error
	c.ControlPlane, err = controlplane.Start(c.Ctx, controlplane.Options{
		Dir: filepath.Join(c.Script.Dir, "cluster"), CRDs: controlplane.TechPreviewNoUpgrade,
	})
	c.Must(err)
	c.AtEnd(c.ControlPlane.Stop)
	c.Must(c.ApplyOpenShiftConfig(c.Ctx, controlplane.TechPreviewNoUpgrade))
	config := c.RESTConfig()
	c.kube, err = kubernetes.NewForConfig(config)
	c.Must(err)
	c.client, err = dynamic.NewForConfig(config)
	c.Must(err)
	c.admin = c.kubeconfig("admin", config.BearerToken)
	c.install(config)
	c.Must(c.StartControllerManager(c.Ctx, controlplane.ControllerManagerOptions{}))
	c.AtEnd(func() error {
		var errs []error
		for node := range c.plugins {
			errs = append(errs, c.stopPlugins(node))
		}
		return errors.Join(errs...)
	})
	c.workers, err = nodes.StartWith(c.Ctx, config, nodes.Options{
		Root: func(node string) string { return filepath.Join(c.Script.Dir, strings.TrimPrefix(node, "master-")) },
		Processes: &nodes.Processes{
			Binary: c.Program("kms-health-reporter"), Logs: filepath.Join(c.Script.Dir, "reporters"),
			Replace: func(string) map[string]string { return c.replacements() },
			// The stand-in writes other paths into the file, which the reporter
			// would report as not the one that its pod was created for.
			Env: []string{"KMS_HEALTH_CONFIG_HASH="},
		},
		Log: slog.New(slog.NewTextHandler(c.log, nil)),
	}, nodeNames...)
	c.Must(err)
	c.AtEnd(func() error { c.workers.Stop(); return nil })
}

// replacements are those in the reporters' files.
func (c *cluster) replacements() map[string]string {
	return map[string]string{
		// A companion is on its node's network, where the API server listens. Under its
		// address the file has it as the internal load balancer.
		"https://localhost:6443":         strings.Replace(c.URL(), "127.0.0.1", "localhost", 1),
		"https://kubernetes.default.svc": c.URL(),
	}
}

func (c *cluster) kubeconfig(dir, token string) string {
	path, err := c.WriteKubeconfig(filepath.Join(c.Script.Dir, dir), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	c.Must(err)
	return path
}

// install applies manifests/openshift: all but what runs the operator, which is a
// process here, with a file of its own.
func (c *cluster) install(config *rest.Config) {
	c.Must(apiservers.CreateNamespaces(c.Ctx, c.kube))
	objects, err := install.Render(c.Ctx, install.OpenShift)
	c.Must(err)
	c.Must(install.Objects(c.Ctx, config, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains([]string{"Deployment", "PodDisruptionBudget", "Service", "ConfigMap"}, o.GetKind())
	})...))
}

// setEncryption writes the live Secret, then that of a revision, as OpenShift's operator
// of kube-apiserver would.
func (c *cluster) setEncryption(revision string, providers ...string) {
	for _, r := range []string{"", revision} {
		c.Must(apiservers.Apply(c.Ctx, c.client, "kube-apiserver-operator", apiservers.Secrets, target, apiservers.Secret(r, apiservers.Encryption(providers...))))
	}
}

// roll rolls kube-apiserver's static pod on a node out to a revision that has the
// plugins of these keys. The plugins of before end with the pod of before. The plugins
// of one key share their state, as nodes share a remote key.
func (c *cluster) roll(node, revision string, keys ...string) {
	c.Must(c.stopPlugins(node))
	pod, err := c.workers.RunStaticPod(c.Ctx, node, staticPod(revision, keys))
	c.Must(err)
	for _, key := range keys {
		c.startPlugin(node, key, c.workers.EmptyDir(pod, socketVolume))
	}
}

func (c *cluster) startPlugin(node, key, folder string) {
	c.Must(os.MkdirAll(filepath.Join(c.Script.Dir, "control"), 0o700))
	p, err := kmsplugin.Start(kmsplugin.Options{
		Endpoint: "unix://" + filepath.Join(folder, "kms-"+key+".sock"), StateDir: filepath.Join(c.Script.Dir, "vault-"+key),
	})
	c.Must(err)
	c.plugins[node] = append(c.plugins[node], p)
	control, err := kmsplugin.ServeControl(p, c.control(node, key))
	c.Must(err)
	c.plugins[node] = append(c.plugins[node], control)
}

func (c *cluster) rollAll(revision string, keys ...string) {
	for _, node := range nodeNames {
		c.roll(node, revision, keys...)
	}
}

func (c *cluster) stopPlugins(node string) error {
	var errs []error
	for _, p := range slices.Backward(c.plugins[node]) {
		errs = append(errs, p.Close())
	}
	delete(c.plugins, node)
	return errors.Join(errs...)
}

func staticPod(revision string, keys []string) *corev1.Pod {
	p := apiservers.StaticPod(revision)
	if len(keys) == 0 {
		p.Spec.Containers[0].VolumeMounts, p.Spec.Volumes = nil, nil
		return p
	}
	p.Spec.Volumes[0].Name, p.Spec.Containers[0].VolumeMounts[0].Name = socketVolume, socketVolume
	for _, key := range keys {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "kms-plugin-" + key, Image: "kms-plugin:demo", Args: []string{"--endpoint=unix:///var/run/kmsplugin/kms-" + key + ".sock"},
			VolumeMounts: p.Spec.Containers[0].VolumeMounts,
		})
	}
	return p
}

// control is the path of the socket by which a plugin takes commands.
func (c *cluster) control(node, key string) string {
	return filepath.Join(c.Script.Dir, "control", node+"-kms-"+key)
}

func (c *cluster) operatorFile() string { return filepath.Join(c.Script.Dir, "operator.yaml") }

var operatorConfiguration = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n" +
	"probe:\n  interval: " + interval.String() + "\napiServers:\n" + apiservers.Kube.Target()

// configure replaces the operator's file.
func (c *cluster) configure(text string) {
	c.Must(os.WriteFile(c.operatorFile()+".new", []byte(text), 0o600))
	c.Must(os.Rename(c.operatorFile()+".new", c.operatorFile()))
}

// startOperator runs the operator as its ServiceAccount.
func (c *cluster) startOperator() {
	token, err := c.ServiceAccountToken(c.Ctx, home, install.ServiceAccount, controlplane.TokenOptions{Lifetime: 24 * time.Hour})
	c.Must(err)
	c.operator = c.Start("kms-health-operator", "operator.log",
		"run", "--config", c.operatorFile(), "--kubeconfig", c.kubeconfig("operator", token), "--namespace", home, "--image", "kms-health-reporter:demo",
		"--leader-elect=true", "--metrics-bind-address=0", "--health-bind-address=0", "--degraded-inertia="+inertia.String())
	c.Alive = c.operator
	c.Shell("kms-health-operator run --config operator.yaml …     # process %d, as ServiceAccount %s", c.operator.Process.Pid, home+"/"+install.ServiceAccount)
}

// kubectl shows a command, runs it, and shows its output.
func (c *cluster) kubectl(args ...string) { c.show(0, args...) }

// show requires an exit code.
func (c *cluster) show(code int, args ...string) {
	text := commandLine(args)
	c.Shell("%s", text)
	output, exit, err := c.run(args...)
	if err != nil && exit < 0 || exit != code {
		c.Fail("%s: exit code %d, must be %d: %v\n%s", text, exit, code, err, output)
	}
	c.Text(string(output))
}

// run runs kubectl, and returns what it prints and its exit code.
func (c *cluster) run(args ...string) (output []byte, exit int, err error) {
	cmd := exec.CommandContext(c.Ctx, filepath.Join(c.tools, "kubectl"), args...)
	// kubectl finds its plugins in PATH.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "PATH="+c.path())
	output, err = cmd.CombinedOutput()
	return output, cmd.ProcessState.ExitCode(), err
}

func (c *cluster) path() string {
	return c.tools + ":" + filepath.Dir(c.Program("kubectl-kms_health")) + ":" + os.Getenv("PATH")
}

// commandLine is a kubectl command as one would type it.
func commandLine(args []string) string {
	words := []string{"kubectl"}
	for _, a := range args {
		if strings.ContainsAny(a, `{}"'\[]*|<>&; `) {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
