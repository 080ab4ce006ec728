package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/nodes"
)

// patience bounds the wait for one thing to happen, on a busy machine too.
const patience = 30 * time.Second

// Where things are, as shipped for OpenShift.
const (
	home   = "openshift-kms-health"     // the operator's namespace
	target = "openshift-kube-apiserver" // that of the API servers
)

var nodeNames = []string{"master-0", "master-1", "master-2"}

// stage is where the demo plays.
type stage struct {
	ctx     context.Context
	dir     string
	tools   string // folder of etcd, kube-apiserver, kubectl
	bin     string // folder of our programs
	scene   int
	colours bool
	closed  bool
	log     *os.File // of what runs in this process

	cluster *controlplane.ControlPlane
	kube    kubernetes.Interface
	client  dynamic.Interface
	workers *nodes.Nodes
	admin   string // an administrator's kubeconfig

	plugins map[string][]*plugin // by node

	operator           *controlplane.Child
	operatorKubeconfig string
}

// plugin is one that serves in the socket folder of a static pod, and takes
// commands on a socket of its own.
type plugin struct {
	*kmsplugin.Plugin
	control *kmsplugin.Control
}

func (p *plugin) close() error { return errors.Join(p.control.Close(), p.Plugin.Close()) }

func newStage(ctx context.Context) (*stage, error) {
	tools, err := filepath.Abs(os.Getenv("KUBEBUILDER_ASSETS"))
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, err
	}
	for _, path := range []string{program("kms-health-operator"), program("kms-health-reporter"), program("kubectl-kms_health"), filepath.Join(tools, "kubectl")} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w; run `make demo-cluster`, which builds it", err)
		}
	}
	// Not TMPDIR: the path of a socket has at most 107 bytes, and with a pod's
	// folders it comes close.
	dir, err := os.MkdirTemp("/tmp", "k")
	if err != nil {
		return nil, err
	}
	s := &stage{
		ctx: ctx, dir: dir, tools: tools, bin: bin, plugins: map[string][]*plugin{},
		colours: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
	}
	// What the libraries in this process log is for a demo that fails.
	if s.log, err = os.Create(s.logPath("democluster")); err != nil {
		return nil, errors.Join(err, s.close())
	}
	klog.LogToStderr(false)
	klog.SetOutput(s.log)
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return s, nil
}

func program(name string) string { return filepath.Join("bin", name) }

func (s *stage) logPath(name string) string { return filepath.Join(s.dir, name+".log") }

// startCluster brings up what OpenShift would: the API, its nodes, and what the
// operator is installed by.
func (s *stage) startCluster() (err error) {
	if s.cluster, err = controlplane.Start(s.ctx, controlplane.Options{
		Dir: filepath.Join(s.dir, "cluster"), CRDs: controlplane.TechPreviewNoUpgrade,
	}); err != nil {
		return err
	}
	if err := s.cluster.ApplyOpenShiftConfig(s.ctx, controlplane.TechPreviewNoUpgrade); err != nil {
		return err
	}
	config := s.cluster.RESTConfig()
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	s.admin, err = s.cluster.WriteKubeconfig(filepath.Join(s.dir, "admin"), controlplane.Kubeconfig{
		Credential: controlplane.Credential{Token: config.BearerToken},
	})
	if err != nil {
		return err
	}
	if err := s.install(config); err != nil {
		return err
	}
	if err := s.cluster.StartControllerManager(s.ctx, controlplane.ControllerManagerOptions{}); err != nil {
		return err
	}
	reporter, err := filepath.Abs(program("kms-health-reporter"))
	if err != nil {
		return err
	}
	s.workers, err = nodes.StartWith(s.ctx, config, nodes.Options{
		Root: func(node string) string {
			return filepath.Join(s.dir, strings.TrimPrefix(node, "master-"))
		},
		Processes: &nodes.Processes{
			Binary: reporter, Logs: filepath.Join(s.dir, "reporters"),
			// A companion is on its node's network, where the API server listens.
			Replace: map[string]string{"https://localhost:6443": s.cluster.URL()},
			// The stand-in writes other paths into the file, which the reporter
			// would tell from the one that its pod was made for.
			Env: []string{"KMS_HEALTH_CONFIG_HASH="},
		},
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}, nodeNames...)
	return err
}

// install applies manifests/openshift: all but what runs the operator, which is a
// process here, with a file of its own.
func (s *stage) install(config *rest.Config) error {
	if err := apiservers.CreateNamespaces(s.ctx, s.kube); err != nil {
		return err
	}
	objects, err := install.Render(s.ctx, config.CAData, install.OpenShift)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains([]string{"Deployment", "PodDisruptionBudget", "Service", "ConfigMap"}, o.GetKind())
	})
	return install.Objects(s.ctx, config, objects...)
}

// until waits for something to be so, as long as the operator runs, where it is
// meant to.
func (s *stage) until(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var ended <-chan struct{}
	if s.operator != nil {
		ended = s.operator.Done()
	}
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ended:
			return fmt.Errorf("the operator ended by itself before this was seen: %s", what)
		case <-ctx.Done():
			return fmt.Errorf("expected, but not seen within %s: %s: %w", patience, what, err)
		}
	}
}

// stays checks that something is so for a while.
func (s *stage) stays(what string, while time.Duration, check func() error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(while); time.Now().Before(end); {
		if err := check(); err != nil {
			return fmt.Errorf("not so any more: %s: %w", what, err)
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}

// logTails returns what was logged last, for a demo that failed.
func (s *stage) logTails() error {
	const lines = 12
	paths := []string{s.logPath("operator"), s.logPath("democluster")}
	reporters, _ := filepath.Glob(filepath.Join(s.dir, "reporters", "*")) // fails for a bad pattern only
	var b strings.Builder
	for _, path := range append(paths, reporters...) {
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "--- the end of %s:\n%s\n", s.tidy(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return errors.New(strings.TrimSpace(b.String()))
}

// close ends every process by its id, what watches before what is watched, and
// removes the folder. It may be called again.
func (s *stage) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.operator != nil {
		errs = append(errs, s.stopOperator())
	}
	if s.workers != nil {
		s.workers.Stop()
	}
	for node := range s.plugins {
		errs = append(errs, s.stopPlugins(node))
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if s.log != nil {
		klog.SetOutput(io.Discard)
		errs = append(errs, s.log.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
