package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// boot starts the programs of a node, and calls before once the container runtime works. It does not wait for static
// pods, because with an unhealthy plugin kube-apiserver never becomes ready.
func (n *Node) boot(ctx context.Context, before func(context.Context) error) error {
	steps := []func(context.Context) error{n.startFirst, n.connect, n.startContainerd, before, n.startKubelet,
		n.startNetwork}
	if n.index == 1 {
		steps = []func(context.Context) error{n.startFirst, n.connect, n.startContainerd, n.startEtcd, before,
			n.startKubelet, n.startControllers, n.startNetwork}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// PowerOn starts a node after a PowerCut, and returns when its programs run.
func (n *Node) PowerOn(ctx context.Context) error {
	return n.boot(ctx, func(context.Context) error { return nil })
}

// PowerCut kills all processes of the node at once. The disk stays as it is at that moment: /etc, /var/log, and the
// folders of etcd, the kubelet and containerd. /run, /tmp, the network and all mounts are lost.
func (n *Node) PowerCut() error {
	err := n.first.Load().Kill()
	n.mu.Lock()
	children := n.children
	n.children = nil
	n.mu.Unlock()
	for _, c := range children {
		<-c.Done() // the kernel kills it
	}
	_ = n.cluster.inSwitch(context.Background(), "link", "delete", n.link())
	// A cgroup is busy for a moment after its last process has ended.
	return errors.Join(err, wait.For(context.Background(), time.Minute, "the end of the cgroups",
		func(context.Context) error {
			return n.removeCgroups()
		}))
}

// removeCgroups removes the cgroups of all containers on containerd's disk. They are on the host, below k8s.io in each
// hierarchy, so they do not end with the node.
func (n *Node) removeCgroups() error {
	containers, _ := filepath.Glob(filepath.Join(n.dir, "containerd/io.containerd.grpc.v1.cri/*/*"))
	for _, root := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		for _, container := range containers {
			left, _ := filepath.Glob(filepath.Join(root, filepath.Base(container)))
			for _, cgroup := range left {
				// Only folders are deleted: a cgroup's files cannot be removed.
				if out, err := exec.Command("find", cgroup, "-depth", "-type", "d", "-delete").CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
			}
		}
		roots, _ := filepath.Glob(root)
		for _, empty := range roots {
			_ = unix.Rmdir(empty) // fails while others use it
		}
	}
	return nil
}

// restartDelay is the time between an end and a restart, as of a service manager.
const restartDelay = time.Second

// keep is daemon for a program that ends when it cannot reach the API server. It restarts the program as long as the
// node runs.
func (n *Node) keep(name, path string, args ...string) error {
	first := n.first.Load()
	c, err := n.daemon(name, path, args...)
	if err != nil {
		return err
	}
	go func() {
		for {
			<-c.Done()
			select {
			case <-first.Done():
				return
			case <-time.After(restartDelay):
			}
			if next, err := n.daemon(name, path, args...); err == nil {
				c = next
			}
		}
	}()
	return nil
}
