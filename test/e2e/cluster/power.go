package cluster

import (
	"context"
	"errors"
	"time"
)

// PowerCut ends all processes of the node at once, by SIGKILL. Its disk stays as it is at
// that moment: /etc, /var/log, and the folders of etcd, the kubelet and containerd. Memory
// is lost: /run, /tmp, the network, and all mounts.
func (n *Node) PowerCut() error {
	containers := n.containerIDs()
	err := n.first.Load().Kill()
	n.mu.Lock()
	children := n.children
	n.children = nil
	n.mu.Unlock()
	for _, c := range children {
		<-c.Done() // the kernel has killed it
	}
	// The cgroups are the host's, and do not end with the node.
	_ = n.cluster.inSwitch(context.Background(), "link", "delete", n.link())
	return errors.Join(err, removeCgroups(containers))
}

// PowerOn starts a node after a PowerCut, and returns when its programs run. It does not
// wait for static pods: with an unhealthy plugin its kube-apiserver is never ready.
func (n *Node) PowerOn(ctx context.Context) error {
	if n.PID() != 0 {
		return errors.New(n.Name + " runs")
	}
	if err := n.startFirst(); err != nil {
		return err
	}
	if err := n.connect(ctx); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	if n.index == 1 {
		if err := n.startEtcd(ctx); err != nil {
			return err
		}
	}
	if err := n.startKubelet(); err != nil {
		return err
	}
	if n.index == 1 {
		if err := n.startControllers(); err != nil {
			return err
		}
	}
	return n.startNetwork()
}

// restartDelay is that of a service manager.
const restartDelay = time.Second

// keep is daemon for a program that ends when it does not reach the API server: it is
// started again for as long as the node runs.
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
