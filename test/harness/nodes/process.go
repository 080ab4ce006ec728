package nodes

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	// processContainer is the name of the containers that are run.
	processContainer = "kms-health"
	// A kubelet gives a pod its grace period; tests wait for less.
	processGrace = 3 * time.Second
	// processInterval is between two updates of the volumes, and before a restart.
	processInterval = 200 * time.Millisecond
)

// Processes are how the containers named kms-health are run.
type Processes struct {
	// Binary is the program: it takes the place of the container's image and command.
	Binary string
	// Logs is the folder of the programs' output, a file for every pod, over all its runs.
	Logs string
	// Env is added to every process's environment, as NAME=value. It is otherwise
	// the pod's own, with PATH and KUBERNETES_SERVICE_HOST and _PORT.
	Env []string
	// Replace is what else is replaced on a node where mountPaths are, for example
	// https://localhost:6443 by the API server's URL. Nil: nothing.
	Replace func(node string) map[string]string
}

// of returns the container of a pod that is run, or nil.
func (p *Processes) of(pod *corev1.Pod) *corev1.Container {
	if p == nil {
		return nil
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == processContainer {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// ProcessID is that of the process which runs a container of this pod, 0 while
// there is none.
func (n *Nodes) ProcessID(namespace, name string) int {
	if s := n.find(namespace + "/" + name); s != nil {
		return int(s.pid.Load())
	}
	return 0
}

// process runs a container of a sandbox.
type process struct {
	*sandbox
	container *corev1.Container
	child     *controlplane.Child
	replacer  *strings.Replacer
	token     string
	minted    time.Time // the token
}

// run runs a container of the pod until ctx ends, and again when it exits. Its volumes are there
// before it is started, and kept up to date.
func (s *sandbox) run(ctx context.Context, pod *corev1.Pod, container *corev1.Container) {
	p := &process{sandbox: s, container: container}
	p.replacer = p.newReplacer(pod)
	defer func() {
		if p.child != nil {
			p.warn("a process does not end", p.child.Stop(context.Background(), processGrace))
		}
	}()
	for {
		// Its annotations may have changed. A static pod may have no mirror yet.
		if now, err := get[*corev1.Pod](s.nodes.pods, s.key); err == nil && now != nil && identity(now) == s.identity {
			pod = now
		}
		if err := p.writeVolumes(ctx, pod); err != nil {
			p.warn("a volume is not up to date", err)
		} else if err := p.start(pod); err != nil {
			p.warn("a process is not started", err)
		}
		if p.child != nil {
			s.pid.Store(int64(p.child.PID()))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(processInterval):
		}
	}
}

func (p *process) warn(what string, err error) {
	if err != nil {
		p.nodes.log.Warn(what, "pod", p.key, "error", err)
	}
}

// start starts the process unless it runs.
func (p *process) start(pod *corev1.Pod) error {
	if p.child != nil {
		select {
		case <-p.child.Done():
		default:
			return nil
		}
	}
	env, args, err := p.command(pod)
	if err != nil {
		return err
	}
	options := p.nodes.options.Processes
	if err := os.MkdirAll(options.Logs, 0o755); err != nil {
		return err
	}
	log := filepath.Join(options.Logs, fmt.Sprintf("%s_%s_%s.log", pod.Namespace, pod.Name, p.identity))
	p.child, err = controlplane.StartChild(p.key, options.Binary, append(env, options.Env...), args, log)
	return err
}

// command returns the environment and the arguments of a container's process.
func (p *process) command(pod *corev1.Pod) (env, args []string, err error) {
	api, err := url.Parse(p.nodes.config.Host)
	if err != nil {
		return nil, nil, err
	}
	host, port, err := net.SplitHostPort(api.Host)
	if err != nil {
		return nil, nil, err
	}
	env = []string{"PATH=" + os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, variable := range p.container.Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			if value, err = p.field(pod, variable.ValueFrom.FieldRef); err != nil {
				return nil, nil, fmt.Errorf("environment variable %s: %w", variable.Name, err)
			}
		}
		env = append(env, variable.Name+"="+value)
	}
	for _, word := range p.container.Args {
		args = append(args, p.replacer.Replace(word))
	}
	return env, args, nil
}

var subscript = regexp.MustCompile(`^metadata\.annotations\['(.*)'\]$`)

// field returns what the downward API gives for a field, of those that manifests use.
func (p *process) field(pod *corev1.Pod, from *corev1.ObjectFieldSelector) (string, error) {
	if from == nil {
		return "", fmt.Errorf("the simulated kubelet supports no source but fieldRef")
	}
	if parts := subscript.FindStringSubmatch(from.FieldPath); parts != nil {
		return pod.Annotations[parts[1]], nil
	}
	switch from.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return p.identity, nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	}
	return "", fmt.Errorf("the simulated kubelet does not support the field %s", from.FieldPath)
}
