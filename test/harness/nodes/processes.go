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
	// Logs is the folder of the programs' output, a file for every pod, over all
	// its runs. It is made where needed, and kept.
	Logs string
	// Env is added to every process's environment, as NAME=value. It is otherwise
	// the pod's own, with PATH and KUBERNETES_SERVICE_HOST and _PORT.
	Env []string
	// Replace is what else is replaced on a node where mountPaths are, for example
	// https://localhost:6443 by the API server's URL. Nil: nothing.
	Replace func(node string) map[string]string
}

// processContainer is the name of the containers that are run.
const processContainer = "kms-health"

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
