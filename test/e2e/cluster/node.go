package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// Paths in a node.
const (
	manifestsDir = "/etc/kubernetes/manifests"
	pkiDir       = "/etc/kubernetes/pki"
	binariesDir  = "/opt/e2e"
	// StateDir has control sockets of plugins, and files that hold an API server down. Tests use it from the host.
	StateDir = "/var/lib/e2e"
	// RemoteDir is shared by all nodes. It has the keys of the simulated remote KMS.
	RemoteDir = "/var/lib/e2e-remote"
)

// Node is a running node.
type Node struct {
	Name string
	// IP is the node's address on the bridge.
	IP net.IP

	cluster *Cluster
	dir     string // on the host
	index   int
	first   atomic.Pointer[controlplane.Child] // the first process
	ahead   time.Duration                      // how far the node's clock is ahead; kubelet: the kubelet's clock
	kubelet time.Duration

	mu       sync.Mutex
	children []*controlplane.Child
}

func nodeIP(index int) net.IP { return net.IPv4(192, 168, 126, byte(10+index)) }

// newNode returns a node that is off.
func (c *Cluster) newNode(index int) (*Node, error) {
	n := &Node{
		Name: fmt.Sprintf("node-%d", index), IP: nodeIP(index),
		cluster: c, index: index, dir: filepath.Join(c.dir, fmt.Sprintf("n%d-%d", index, c.generation.Add(1))),
	}
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	if disk := c.options.Disk; disk != "" && index > 1 {
		if err := unix.Mount("tmpfs", n.dir, "tmpfs", 0, "size="+disk); err != nil {
			return nil, fmt.Errorf("mount the disk of %s: %w", n.Name, err)
		}
	}
	n.setClocks()
	return n, os.Mkdir(filepath.Join(n.dir, "log"), 0o755)
}

func (n *Node) startFirst(context.Context) error {
	script := string(file("node.sh", nil))
	cmd := exec.Command("bash", "-c", script, "node.sh", n.Name, n.dir, n.cluster.dir, n.cluster.options.Assets)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	var stderr bytes.Buffer
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = &stderr
	first, err := namespaces(os.Getpid()).start("the first process", cmd)
	if err != nil {
		return err
	}
	n.first.Store(first)
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(stdout, line); err != nil {
		<-first.Done()
		return fmt.Errorf("%w: %s", first.Err(), bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// link is the name of the bridge's end of the node's veth pair.
func (n *Node) link() string { return fmt.Sprintf("n%d", n.index) }

// connect connects the node to the bridge, with routes to the pods of other nodes.
func (n *Node) connect(ctx context.Context) error {
	pid := strconv.Itoa(n.PID())
	for _, args := range [][]string{
		{"link", "add", n.link(), "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"link", "set", n.link(), "master", "br0", "up"},
	} {
		if err := n.cluster.inSwitch(ctx, args...); err != nil {
			return err
		}
	}
	return errors.Join(
		n.ip(ctx, "address", "add", n.IP.String()+"/24", "dev", "eth0"),
		n.ip(ctx, "link", "set", "eth0", "up"),
		n.ip(ctx, "route", "add", "default", "via", balancerIP),
		n.routes(ctx),
	)
}

// routes adds routes to the pods of all other nodes.
func (n *Node) routes(ctx context.Context) error {
	for i := 1; i <= maxNodes; i++ {
		if i != n.index {
			if err := n.ip(ctx, "route", "replace", fmt.Sprintf("10.128.%d.0/24", i), "via", nodeIP(i).String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) ip(ctx context.Context, args ...string) error {
	_, err := n.Run(ctx, "ip", args...)
	return err
}

// CutNetwork disconnects the node. Its loopback stays.
func (n *Node) CutNetwork(ctx context.Context) error {
	return n.cluster.inSwitch(ctx, "link", "set", n.link(), "down")
}

// RestoreNetwork connects the node again.
func (n *Node) RestoreNetwork(ctx context.Context) error {
	return n.cluster.inSwitch(ctx, "link", "set", n.link(), "up")
}

// Run runs a program in the node, and returns what it writes to its standard output.
func (n *Node) Run(ctx context.Context, program string, args ...string) (string, error) {
	return run(ctx, namespaces(n.PID()), exec.Command(program, args...), allNamespaces...)
}

func run(ctx context.Context, where namespaces, cmd *exec.Cmd, kinds ...string) (string, error) {
	if cmd.Dir == "" {
		cmd.Dir, cmd.Env = "/", environment
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	c, err := where.start(cmd.Path, cmd, kinds...)
	if err != nil {
		return "", err
	}
	select {
	case <-c.Done():
		err = c.Err()
	case <-ctx.Done():
		err = errors.Join(ctx.Err(), c.Kill())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), err
}

var environment = []string{"PATH=" + binariesDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// daemon starts a program that runs as long as the node. Its output is in the node's /var/log/NAME.log.
func (n *Node) daemon(name, path string, args ...string) (*controlplane.Child, error) {
	log, err := os.OpenFile(filepath.Join(n.dir, "log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = "/", environment
	cmd.Stdout, cmd.Stderr = log, log
	c, err := namespaces(n.PID()).start(name, cmd, allNamespaces...)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.children = append(n.children, c)
	return c, nil
}

// Path returns the path on the host of a file of the node. It does not work for paths with absolute symbolic links.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.PID()), "root", path)
}

// WriteFile replaces a file of the node in one step.
func (n *Node) WriteFile(path string, content []byte, mode os.FileMode) error {
	path = n.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The kubelet skips files that begin with a dot.
	partial := filepath.Join(filepath.Dir(path), ".partial")
	if err := os.WriteFile(partial, content, mode); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

func (n *Node) writePKI() error {
	files, err := n.cluster.pki.nodeFiles(n)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := n.WriteFile(filepath.Join(pkiDir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) startContainerd(ctx context.Context) error {
	if err := errors.Join(
		n.WriteFile("/etc/containerd/config.toml", file("containerd.toml", n.ahead != 0), 0o644),
		n.writeContainerClock(ctx),
		// Without an upstream DNS server an unknown name fails at once.
		n.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644),
		n.WriteFile("/etc/cni/net.d/10-pods.conflist", file("pods.conflist", n.index), 0o644),
	); err != nil {
		return err
	}
	daemon, err := n.daemon("containerd", "containerd", "--config=/etc/containerd/config.toml")
	if err != nil {
		return err
	}
	return n.awaitDaemon(ctx, daemon, func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	})
}

// awaitDaemon waits until a started program answers.
func (n *Node) awaitDaemon(ctx context.Context, daemon *controlplane.Child, check func(context.Context) error) error {
	return wait.For(ctx, 2*time.Minute, daemon.Name, func(ctx context.Context) error {
		if !daemon.Running() {
			return wait.Final(fmt.Errorf("%s ended: %w", daemon.Name, daemon.Err()))
		}
		return check(ctx)
	})
}

// importImages imports all images that the cluster has so far.
func (n *Node) importImages(ctx context.Context) error {
	archives, err := filepath.Glob(filepath.Join(n.cluster.dir, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := n.importArchive(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) importArchive(ctx context.Context, archive string) error {
	_, err := n.ctr(ctx, "images", "import", filepath.Join("/opt/images", filepath.Base(archive)))
	return err
}

func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	return n.Run(ctx, "ctr", append([]string{"--namespace=k8s.io"}, args...)...)
}

func (n *Node) startKubelet(context.Context) error {
	if err := n.WriteFile("/etc/kubernetes/kubelet.yaml", file("kubelet.yaml", nil), 0o644); err != nil {
		return err
	}
	_, err := n.daemon("kubelet", "/usr/bin/env", clockSetting(n.kubelet), binariesDir+"/kubelet",
		"--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig="+pkiDir+"/kubelet.kubeconfig",
		"--hostname-override="+n.Name, "--node-ip="+n.IP.String(), "--v=2")
	return err
}

// restartGrace bounds the restart of a daemon.
const restartGrace = 2 * time.Minute

// restart ends a daemon and starts it again.
func (n *Node) restart(name string, start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), restartGrace)
	defer cancel()
	var running *controlplane.Child
	// A program started by keep may be between its end and its next start.
	if err := wait.For(ctx, time.Minute, name+" runs on "+n.Name, func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, c := range n.children {
			if c.Name == name && c.Running() {
				running = c
				return nil
			}
		}
		return errors.New("it does not")
	}); err != nil {
		return err
	}
	if err := running.Stop(ctx, restartGrace); err != nil {
		return err
	}
	return start(ctx)
}

// RestartKubelet restarts the kubelet, which then requests new tokens for all pods.
func (n *Node) RestartKubelet() error { return n.restart("kubelet", n.startKubelet) }

// startNetwork is startNetworkAs with kube-proxy's kubeconfig.
func (n *Node) startNetwork(ctx context.Context) error {
	return n.startNetworkAs(ctx, pkiDir+"/kube-proxy.kubeconfig")
}

// startNetworkAs starts kube-proxy, and a DNS server for the name kubernetes.default.svc.
func (n *Node) startNetworkAs(ctx context.Context, kubeconfig string) error {
	err := n.keep("kube-proxy", binariesDir+"/kube-proxy", "--kubeconfig="+kubeconfig,
		"--hostname-override="+n.Name, "--cluster-cidr="+podCIDR, "--conntrack-max-per-core=0", "--proxy-mode=iptables")
	if err != nil {
		return err
	}
	if err := n.ip(ctx, "address", "replace", dnsIP+"/32", "dev", "lo"); err != nil {
		return err
	}
	if err := n.useOwnServer(ctx); err != nil {
		return err
	}
	_, err = n.daemon("dnsmasq", "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces",
		"--listen-address="+dnsIP, "--address=/kubernetes.default.svc.cluster.local/"+serviceIP, "--user=root", "--pid-file=")
	return err
}

// stop ends everything in the node, and removes its folder.
func (n *Node) stop() error {
	err := n.PowerCut()
	_ = unix.Unmount(n.dir, unix.MNT_DETACH) // fails if the node has no disk of its own
	return errors.Join(err, os.RemoveAll(n.dir))
}
