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

	"github.com/kms-health/kms-health/test/demo/script"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/harness/reporters"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

var (
	home      = install.Namespace(install.OpenShift) // the operator's namespace
	target    = apiservers.Kube.Namespace            // that of the API server
	nodeNames = []string{"master-0", "master-1", "master-2"}
)

// cluster is what OpenShift would be, and the operator.
type cluster struct {
	*script.Script
	tools string // folder of etcd, kube-apiserver, kubectl

	*controlplane.ControlPlane
	kube    kubernetes.Interface
	client  dynamic.Interface
	workers *nodes.Nodes
	admin   string // an administrator's kubeconfig

	plugins map[string][]io.Closer // by node: each with the control of it after it
}

func newCluster(s *script.Script) *cluster {
	c := &cluster{Script: s, plugins: map[string][]io.Closer{}}
	var err error
	c.tools, err = filepath.Abs(os.Getenv("KUBEBUILDER_ASSETS"))
	s.Must(err)
	// What the libraries in this process log is of no interest to who watches.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return c
}

// start starts the API and its nodes, and applies manifests/openshift: all but what runs the
// operator, which is a process here, with a file of its own.
func (c *cluster) startCluster() {
	var err error
	c.ControlPlane, err = controlplane.Start(c.Ctx, controlplane.Options{
		Dir: c.path("cluster"), CRDs: controlplane.TechPreviewNoUpgrade,
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

	c.Must(apiservers.CreateNamespaces(c.Ctx, c.kube))
	objects, err := install.Render(c.Ctx, install.OpenShift)
	c.Must(err)
	c.Must(install.Objects(c.Ctx, config, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains([]string{"Deployment", "PodDisruptionBudget", "Service", "ConfigMap"}, o.GetKind())
	})...))
	c.Must(c.StartControllerManager(c.Ctx, controlplane.OperatorControllers...))
	c.AtEnd(func() error {
		var errs []error
		for node := range c.plugins {
			errs = append(errs, c.stopPlugins(node))
		}
		return errors.Join(errs...)
	})
	c.workers, err = nodes.Start(c.Ctx, config, nodeNames...)
	c.Must(err)
	c.AtEnd(func() error { c.workers.Stop(); return nil })
	c.Must(os.Mkdir(c.path("reporters"), 0o700))
	c.Logs = append(c.Logs, c.path("reporters/*.log"), c.path("reporters/*.error"))
	running, err := reporters.Start(reporters.Options{
		Cluster: c.ControlPlane, Binary: c.Program("kms-health-reporter"), Dir: c.path("reporters"), Sockets: c.path,
	})
	c.Must(err)
	c.AtEnd(func() error { running.Stop(); return nil })
}

func (c *cluster) path(name string) string { return filepath.Join(c.Script.Dir, name) }

func (c *cluster) kubeconfig(dir, token string) string {
	path, err := c.WriteKubeconfig(c.path(dir), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	c.Must(err)
	return path
}

// setEncryption writes the live Secret, then that of a revision, as OpenShift's operator
// of kube-apiserver would.
func (c *cluster) setEncryption(revision string, providers ...string) {
	for _, r := range []string{"", revision} {
		c.Must(apiservers.Apply(c.Ctx, c.client, "kube-apiserver-operator", apiservers.Secrets, target,
			apiservers.Secret(r, apiservers.Encryption(providers...))))
	}
}

// roll rolls kube-apiserver's static pod on nodes out to a revision that has the plugins of these keys.
// The plugins of before end with the pod of before. The plugins of one key share their state, as
// nodes share a remote key.
func (c *cluster) roll(revision string, keys []string, on ...string) {
	for _, node := range on {
		c.Must(c.stopPlugins(node))
		pod := apiservers.StaticPod(revision)
		if len(keys) == 0 {
			pod.Spec.Containers[0].VolumeMounts, pod.Spec.Volumes = nil, nil
		}
		for _, key := range keys {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: "kms-plugin-" + key, Image: "kms-plugin:demo", VolumeMounts: pod.Spec.Containers[0].VolumeMounts,
				Args: []string{"--endpoint=unix:///var/run/kmsplugin/kms-" + key + ".sock"},
			})
		}
		_, err := c.workers.RunStaticPod(c.Ctx, node, pod)
		c.Must(err)
		c.Must(os.MkdirAll(c.path(node), 0o700))
		for _, key := range keys {
			p, err := kmsplugin.Start(kmsplugin.Options{
				Endpoint: "unix://" + filepath.Join(c.path(node), "kms-"+key+".sock"), StateDir: c.path("vault-" + key),
			})
			c.Must(err)
			control, err := kmsplugin.ServeControl(p, c.control(node, key))
			c.Must(err)
			c.plugins[node] = append(c.plugins[node], p, control)
		}
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

// control is the path of the socket by which a plugin takes commands.
func (c *cluster) control(node, key string) string {
	return filepath.Join(c.path(node), "control-"+key)
}

func (c *cluster) operatorFile() string { return c.path("operator.yaml") }

// configure replaces the operator's file.
func (c *cluster) configure(text string) {
	c.Must(os.WriteFile(c.operatorFile()+".new", []byte(text), 0o600))
	c.Must(os.Rename(c.operatorFile()+".new", c.operatorFile()))
}

// startOperator runs the operator as its ServiceAccount.
func (c *cluster) startOperator() {
	lasts := controlplane.TokenOptions{Lifetime: 24 * time.Hour}
	token, err := c.ServiceAccountToken(c.Ctx, home, install.ServiceAccount, lasts)
	c.Must(err)
	c.Alive = c.Start("kms-health-operator", "operator.log",
		"run", "--config", c.operatorFile(), "--kubeconfig", c.kubeconfig("operator", token), "--namespace", home,
		"--image", "kms-health-reporter:demo", "--leader-elect=true", "--metrics-bind-address=0", "--health-bind-address=0",
		"--degraded-inertia="+inertia.String())
	c.Shell("kms-health-operator run --config operator.yaml …     # process %d, as ServiceAccount %s",
		c.Alive.Process.Pid, home+"/"+install.ServiceAccount)
}

// kubectl shows a command, runs it, shows its output, and requires an exit code.
func (c *cluster) kubectl(code int, args ...string) {
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
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "PATH="+c.searchPath()+":"+os.Getenv("PATH"))
	output, err = cmd.CombinedOutput()
	return output, cmd.ProcessState.ExitCode(), err
}

// searchPath has kubectl, and its plugins, which it finds in PATH.
func (c *cluster) searchPath() string {
	return c.tools + ":" + filepath.Dir(c.Program("kubectl-kms_health"))
}

// commandLine is a kubectl command as one would type it.
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
