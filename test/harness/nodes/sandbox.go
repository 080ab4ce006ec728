package nodes

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// sandbox is a pod on a node: its address, its folder, and where one of its
// containers is a process, that one's id.
type sandbox struct {
	nodes    *Nodes
	kubelet  *kubelet
	key      string
	identity string
	hostIP   string
	podIP    string
	folder   string // <root>/pods/<uid>, or empty where there are no folders
	pid      atomic.Int64

	end func() // once
}

// sandbox returns that of a pod, and begins it where there is none. It is nil
// when the nodes are being stopped.
func (n *Nodes) sandbox(k *kubelet, pod *corev1.Pod) (*sandbox, error) {
	id := identity(pod)
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxes[id]; s != nil || n.stopped {
		return s, nil
	}
	s := &sandbox{nodes: n, kubelet: k, key: keyOf(pod), identity: id, hostIP: k.ip, podIP: pod.Status.PodIP}
	n.sandboxesYet++
	switch {
	case pod.Spec.HostNetwork:
		s.podIP = k.ip
	case s.podIP == "":
		s.podIP = fmt.Sprintf("10.128.%d.%d", n.sandboxesYet/250%250, n.sandboxesYet%250+1)
	}
	if n.options.Root != nil {
		s.folder = filepath.Join(n.options.Root(k.name), "pods", id)
		if err := s.makeEmptyDirs(pod); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(n.ctx)
	ended := make(chan struct{})
	n.wg.Go(func() {
		defer close(ended)
		if container := n.options.Processes.of(pod); container != nil {
			s.run(ctx, pod, container)
		}
	})
	s.end = sync.OnceFunc(func() {
		cancel()
		n.wg.Go(func() {
			<-ended
			s.removeFolder()
			n.mu.Lock()
			delete(n.sandboxes, id)
			n.mu.Unlock()
			n.queue.Add(s.key)
		})
	})
	n.sandboxes[id] = s
	return s, nil
}

func (s *sandbox) makeEmptyDirs(pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.EmptyDir == nil {
			continue
		}
		if err := os.MkdirAll(s.dir(volume), 0o777); err != nil {
			return fmt.Errorf("make an emptyDir of pod %s: %w", s.key, err)
		}
	}
	return nil
}

// emptyDirs is where a kubelet has them, in the folder of a pod.
const emptyDirs = "volumes/kubernetes.io~empty-dir"

func (s *sandbox) removeFolder() {
	if s.folder == "" {
		return
	}
	if err := os.RemoveAll(s.folder); err != nil {
		s.nodes.log.Warn("the folder of a pod stays", "pod", s.key, "error", err)
	}
}

// endOthers ends the sandboxes of a name but for one, and reports whether they are
// ended. The end of each queues the name again.
func (n *Nodes) endOthers(key, keep string) bool {
	n.mu.Lock()
	sandboxes := maps.Clone(n.sandboxes)
	n.mu.Unlock()
	gone := true
	for id, s := range sandboxes {
		if s.key == key && id != keep {
			gone = false
			s.end()
		}
	}
	return gone
}

// find returns the sandbox of a pod's name, or nil.
func (n *Nodes) find(key string) *sandbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sandboxes {
		if s.key == key {
			return s
		}
	}
	return nil
}

// EmptyDir is the folder of an emptyDir volume of a pod on one of these nodes: of
// a mirror pod, that of its static pod. It is there once the pod is Running, or
// RunStaticPod has returned it, and goes with the pod. It needs Options.Root.
func (n *Nodes) EmptyDir(pod *corev1.Pod, volume string) string {
	return filepath.Join(n.options.Root(pod.Spec.NodeName), "pods", identity(pod), emptyDirs, volume)
}

// kubeletRoot is where a kubelet's folder is, on real nodes.
const kubeletRoot = "/var/lib/kubelet"

// hostPath maps a path of the node to one of this host.
func (n *Nodes) hostPath(node, path string) string {
	path = filepath.Clean(path)
	if below, found := strings.CutPrefix(path, kubeletRoot); found && (below == "" || below[0] == '/') {
		return filepath.Join(n.options.Root(node), below)
	}
	if n.options.HostPath != nil {
		return n.options.HostPath(node, path)
	}
	return path
}
