package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/image"
)

const (
	// InternalServer is the URL of the API servers' load balancer, like OpenShift's api-int. Kubelets and kube-proxies use
	// it in a cluster with several nodes.
	InternalServer = "https://" + balancerIP + ":6443"
	balancerIP     = "192.168.126.1" // the bridge's address

	podCIDR   = "10.128.0.0/16"
	serviceIP = "172.30.0.1"
	dnsIP     = "172.30.0.10"
	maxNodes  = 9
)

// PauseImage has a program that waits. With the arguments of a reporter it fails.
const PauseImage = "registry.invalid/e2e/pause:v1"

const module = "github.com/kms-health/kms-health"

// Options of Start.
type Options struct {
	// Assets is the folder with etcd and the Kubernetes binaries.
	Assets string
	// Nodes is the number of nodes, from 1 to 9.
	Nodes int
	// Disk is the size of each node's disk except the first's, for example 2G. Empty: all use the host's disk.
	Disk string
	// Log gets the progress. Nil: nothing is logged.
	Log io.Writer
	// Ahead is by how much the nodes' clocks are ahead of the host's, in the order of the nodes. See clocks.go.
	Ahead []time.Duration

	kubeadm bool // kubeadm makes the API server
}

// Cluster is a running cluster.
type Cluster struct {
	options    Options
	dir        string
	pki        *pki
	bridge     *controlplane.Child // holds the network namespace of the bridge
	balancer   *controlplane.Child
	generation atomic.Int64
	start      time.Time
	admin      string // an administrator's kubeconfig, in a node

	mu    sync.Mutex
	nodes []*Node
	first Revision
}

// Start starts a cluster, and returns when its nodes and API servers are Ready. The caller has to call Stop. After an
// error the Cluster is nil, and everything is stopped.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	return start(ctx, options, func(c *Cluster) error {
		for i := 1; i <= options.Nodes; i++ {
			if _, err := c.AddNode(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// start creates what nodes need, and adds the nodes.
func start(ctx context.Context, options Options, addNodes func(*Cluster) error) (_ *Cluster, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster with kubelets needs root")
	}
	if options.Nodes < 1 || options.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: must be 1 to %d", options.Nodes, maxNodes)
	}
	if options.Assets == "" {
		return nil, errors.New("no folder of Kubernetes' programs is named: KUBEBUILDER_ASSETS, which make sets")
	}
	if options.Assets, err = filepath.Abs(options.Assets); err != nil {
		return nil, err
	}
	c := &Cluster{options: options, start: time.Now(), first: Revision{Number: 1}, admin: pkiDir + "/admin.kubeconfig"}
	// The folder must not be on an overlay file system, because a node's /etc is an overlay.
	if c.dir, err = os.MkdirTemp("", "kms-health-e2e-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.pki, err = newPKI(); err != nil {
		return nil, err
	}
	c.Say("making images")
	if err := c.makeImages(ctx); err != nil {
		return nil, err
	}
	if err := c.startBridge(ctx); err != nil {
		return nil, err
	}
	if err := c.startBalancer(); err != nil {
		return nil, err
	}
	if err := addNodes(c); err != nil {
		return nil, err
	}
	c.Say("all nodes are Ready")
	return c, nil
}

// Say logs the progress.
func (c *Cluster) Say(format string, args ...any) {
	if c.options.Log != nil {
		fmt.Fprintf(c.options.Log, "[%5.1f s] %s\n", time.Since(c.start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// makeImages makes the images that every cluster needs.
func (c *Cluster) makeImages(ctx context.Context) error {
	for _, dir := range []string{"images", "remote"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o755); err != nil {
			return err
		}
	}
	hold, plugin := filepath.Join(c.dir, "hold"), filepath.Join(c.dir, "kms-plugin")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", c.dir,
		module+"/test/e2e/cmd/hold", module+"/test/kmsplugin/cmd/kms-plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build programs of images: %w\n%s", err, out)
	}
	images := map[string]*image.Image{
		"pause":      {Files: map[string]string{"/hold": hold}, Entrypoint: []string{"/hold"}, User: "65532:65532"},
		"kms-plugin": {Files: map[string]string{"/kms-plugin": plugin}, Entrypoint: []string{"/kms-plugin"}},
	}
	if !c.options.kubeadm {
		images["kube-apiserver"] = &image.Image{Files: map[string]string{"/hold": hold, "/kube-apiserver": c.asset("kube-apiserver")}}
		images["sample-apiserver"] = &image.Image{Files: map[string]string{"/sample-apiserver": c.asset("sample-apiserver")},
			Entrypoint: []string{"/sample-apiserver"}}
	}
	for named, i := range images {
		if err := c.addImage(ctx, "registry.invalid/e2e/"+named+":v1", i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) addImage(ctx context.Context, name string, i *image.Image) error {
	x, err := image.NewIndex(name, i)
	if err != nil {
		return err
	}
	return c.AddImage(ctx, x)
}

// AddImage imports an image on all nodes.
func (c *Cluster) AddImage(ctx context.Context, x *image.Index) error {
	archive := filepath.Join(c.dir, "images", fmt.Sprintf("%d.tar", c.generation.Add(1)))
	if err := x.WriteArchive(archive); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := n.importArchive(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) asset(name string) string { return filepath.Join(c.options.Assets, name) }

// startBridge creates a network namespace with a bridge, to which nodes are connected. The host's network does not show
// it.
func (c *Cluster) startBridge(ctx context.Context) (err error) {
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if c.bridge, err = namespaces(os.Getpid()).start("the bridge", cmd); err != nil {
		return err
	}
	for _, args := range []string{
		"link add br0 type bridge", "address add " + balancerIP + "/24 dev br0", "link set br0 up", "link set lo up",
	} {
		if err := c.inSwitch(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

// inSwitch runs ip in the bridge's namespace.
func (c *Cluster) inSwitch(ctx context.Context, args ...string) error {
	_, err := run(ctx, namespaces(c.bridge.PID()), exec.Command("ip", args...), "net")
	return err
}

// startBalancer starts a load balancer that forwards connections to the kube-apiservers in turn, if they accept.
func (c *Cluster) startBalancer() (err error) {
	var servers []string
	for i := 1; i <= c.options.Nodes; i++ {
		servers = append(servers, nodeIP(i).String()+":6443")
	}
	cmd := exec.Command(c.asset("etcd"), "gateway", "start",
		"--listen-addr="+strings.TrimPrefix(InternalServer, "https://"),
		"--endpoints="+strings.Join(servers, ","), "--retry-delay=1s")
	c.balancer, err = namespaces(c.bridge.PID()).start("the load balancer", cmd, "net")
	return err
}

// AddNode adds a node with a number that is not in use, and with a kube-apiserver of the revision of SetFirst. It waits
// until both are Ready.
func (c *Cluster) AddNode(ctx context.Context, number int) (*Node, error) {
	n, err := c.newNode(number)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	revision := c.first
	c.mu.Unlock()
	err = n.boot(ctx, func(ctx context.Context) error {
		return errors.Join(n.importImages(ctx), n.writePKI(), n.Install(revision),
			n.WriteFile("/etc/kubernetes/audit-policy.yaml", file("audit-policy.yaml", nil), 0o644))
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", n.Name, err)
	}
	if err := n.AwaitAPIServer(ctx, "/readyz"); err != nil {
		return nil, err
	}
	c.Say("kube-apiserver of %s answers", n.Name)
	if number == 1 {
		if err := c.prepare(ctx); err != nil {
			return nil, err
		}
	}
	return n, c.awaitNode(ctx, n.Name)
}

// RemoveNode removes a node without a cleanup in the API. Its Node object stays.
func (c *Cluster) RemoveNode(n *Node) error {
	c.mu.Lock()
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(is *Node) bool { return is == n })
	c.mu.Unlock()
	return n.stop()
}

// SetFirst sets the revision that AddNode installs.
func (c *Cluster) SetFirst(r Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = r
}

// Nodes returns all running nodes, the first one first.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

// KeepLogs copies the logs of programs and containers of all nodes into a folder, with a subfolder for each node.
func (c *Cluster) KeepLogs(dir string) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, n := range c.Nodes() {
		out, err := exec.Command("cp", "-a", filepath.Join(n.dir, "log"), filepath.Join(dir, n.Name)).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Stop ends everything, and removes all files except for copies by KeepLogs.
func (c *Cluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes() {
		errs = append(errs, n.stop())
	}
	errs = append(errs, c.balancer.Kill(), c.bridge.Kill())
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// Dial connects to an address as a process of the node does.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return namespaces(n.PID()).dial(ctx, network, address)
}

// RESTConfig returns an administrator's configuration that uses the first node's loopback, so it works without the
// network.
func (c *Cluster) RESTConfig() (*rest.Config, error) { return c.Nodes()[0].RESTConfig() }

// Dir returns the cluster's folder on the host.
func (c *Cluster) Dir() string { return c.dir }

// PID returns the id of the node's first process on the host; 0 while the node is off.
func (n *Node) PID() int {
	if first := n.first.Load(); first.Running() {
		return first.PID()
	}
	return 0
}

// Kubeconfig returns an administrator's kubeconfig for a server that leads to kube-apiserver.
func (c *Cluster) Kubeconfig(server string) ([]byte, error) {
	return c.pki.kubeconfig(server, "admin", "system:masters")
}

// RESTConfig returns an administrator's configuration for this node's API server.
func (n *Node) RESTConfig() (*rest.Config, error) {
	kubeconfig, err := n.cluster.Kubeconfig("https://127.0.0.1:6443")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Dial = n.Dial
	config.QPS, config.Burst = -1, 0
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}
