package nodes

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// Processes is which containers are run, and how.
type Processes struct {
	// Binary is the program: it takes the place of the container's image and of
	// the first element of its command.
	Binary string
	// Container is the name of the containers to run. Empty: kms-health.
	Container string
	// Logs is the folder of the programs' output, a file for every pod: see
	// LogPath. It is made where needed, and kept.
	Logs string
	// Env is added to every process's environment, as NAME=value. It is otherwise
	// the pod's own, with PATH and KUBERNETES_SERVICE_HOST and _PORT.
	Env []string
	// Replace is what else is replaced on a node where mountPaths are, for example
	// https://localhost:6443 by the API server's URL. Nil: nothing.
	Replace func(node string) map[string]string
}

const defaultContainer = "kms-health"

// of returns the container of a pod that is run, or nil.
func (p *Processes) of(pod *corev1.Pod) *corev1.Container {
	if p == nil {
		return nil
	}
	name := p.Container
	if name == "" {
		name = defaultContainer
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// LogPath is the file that the process of a pod writes to, over all its runs.
func (n *Nodes) LogPath(pod *corev1.Pod) string { return n.logPath(pod) }

func (n *Nodes) logPath(pod *corev1.Pod) string {
	return filepath.Join(n.options.Processes.Logs, fmt.Sprintf("%s_%s_%s.log", pod.Namespace, pod.Name, identity(pod)))
}

// ProcessID is that of the process which runs a container of this pod, 0 while
// there is none.
func (n *Nodes) ProcessID(namespace, name string) int {
	s := n.find(namespace + "/" + name)
	if s == nil || s.process == nil {
		return 0
	}
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	if s.process.child == nil {
		return 0
	}
	return s.process.child.PID()
}

// KillProcess ends the process of this pod by SIGKILL, for the simulated kubelet to start
// it again.
func (n *Nodes) KillProcess(namespace, name string) error {
	s := n.find(namespace + "/" + name)
	if s != nil && s.process != nil {
		s.process.mu.Lock()
		child := s.process.child
		s.process.mu.Unlock()
		if child != nil {
			return child.Kill()
		}
	}
	return fmt.Errorf("pod %s/%s has no process", namespace, name)
}

// RenewTokens has every projected ServiceAccount token minted anew at once, which
// otherwise happens at 80% of its life.
func (n *Nodes) RenewTokens() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sandboxes {
		if s.process != nil {
			s.process.renew.Store(true)
			s.process.poke()
		}
	}
}
