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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/image"
)

// Images, all of them made here.
const (
	PauseImage     = "registry.invalid/e2e/pause:v1"
	PluginImage    = "registry.invalid/e2e/kms-plugin:v1"
	AggregateImage = "registry.invalid/e2e/sample-apiserver:v1"
	apiServerImage = "registry.invalid/e2e/kube-apiserver:v1"
)

const (
	podCIDR     = "10.128.0.0/16"
	serviceCIDR = "172.30.0.0/16"
	serviceIP   = "172.30.0.1"
	dnsIP       = "172.30.0.10"
	maxNodes    = 9
)

const module = "github.com/kms-health/kms-health"

// Options of Start.
type Options struct {
	// Assets is the folder of the Kubernetes binaries, and etcd.
	Assets string
	// Nodes is their number, from 1 to 9.
	Nodes int
	// Log is given what happens. Nil: nothing is logged.
	Log io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	options    Options
	dir        string
	pki        *pki
	bridge     *controlplane.Child // holds the network namespace of the bridge
	balancer   net.Listener
	generation atomic.Int64
	start      time.Time

	mu    sync.Mutex
	nodes []*Node
	first Revision
}

// Start starts a cluster, and returns when its nodes are Ready and its API servers
// too. Stop it, also after an error's nil.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
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
	c := &Cluster{options: options, start: time.Now(), first: Revision{Number: 1}}
	// It may not be on an overlay file system.
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
	c.say("making images")
	if err := c.makeImages(ctx); err != nil {
		return nil, err
	}
	if err := c.startBridge(ctx); err != nil {
		return nil, err
	}
	if c.balancer, err = c.balance(); err != nil {
		return nil, err
	}
	for i := 1; i <= options.Nodes; i++ {
		if _, err := c.AddNode(ctx, i); err != nil {
			return nil, err
		}
	}
	c.say("all nodes are Ready")
	return c, nil
}

func (c *Cluster) say(format string, args ...any) {
	if c.options.Log != nil {
		fmt.Fprintf(c.options.Log, "[%5.1f s] %s\n", time.Since(c.start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// makeImages makes those that every cluster needs, and the caller's.
func (c *Cluster) makeImages(ctx context.Context) error {
	programs := filepath.Join(c.dir, "programs")
	images := filepath.Join(c.dir, "images")
	for _, dir := range []string{programs, images, filepath.Join(c.dir, "remote")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	hold, err := BuildProgram(ctx, programs, "test/e2e/cmd/hold")
	if err != nil {
		return err
	}
	plugin, err := BuildProgram(ctx, programs, "test/kmsplugin/cmd/kms-plugin")
	if err != nil {
		return err
	}
	for named, i := range map[string]*image.Image{
		PauseImage:     {Files: map[string]string{"/hold": hold}, Entrypoint: []string{"/hold"}},
		PluginImage:    {Files: map[string]string{"/kms-plugin": plugin}, Entrypoint: []string{"/kms-plugin"}},
		apiServerImage: {Files: map[string]string{"/hold": hold, "/kube-apiserver": c.asset("kube-apiserver")}},
		AggregateImage: {Files: map[string]string{"/sample-apiserver": c.asset("sample-apiserver")}, Entrypoint: []string{"/sample-apiserver"}},
	} {
		x, err := image.NewIndex(named, i)
		if err != nil {
			return err
		}
		if err := x.WriteArchive(filepath.Join(images, fmt.Sprintf("%d.tar", c.generation.Add(1)))); err != nil {
			return err
		}
	}
	return nil
}

// BuildProgram builds a program of this module, statically, into dir, and returns its
// path.
func BuildProgram(ctx context.Context, dir, folder string) (string, error) {
	path := filepath.Join(dir, filepath.Base(folder))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, module+"/"+folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return path, nil
}

// AddImage makes an image known to all nodes.
func (c *Cluster) AddImage(ctx context.Context, x *image.Index) error {
	archive := filepath.Join(c.dir, "images", fmt.Sprintf("more-%d.tar", c.generation.Add(1)))
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

// startBridge makes a namespace with a bridge, which nodes are plugged into. Nothing
// of it is seen on the host.
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
	_, err := run(ctx, namespaces(c.bridge.PID()), []string{"net"}, "ip", args...)
	return err
}

// AddNode adds a node, whose number is free, with a kube-apiserver of the first
// revision, and waits until both are Ready.
func (c *Cluster) AddNode(ctx context.Context, number int) (*Node, error) {
	n, err := c.startNode(ctx, number)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	revision := c.first
	c.mu.Unlock()
	c.say("%s has its images", n.Name)
	if number == 1 {
		if err := n.startEtcd(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.WriteFile("/etc/kubernetes/audit-policy.yaml", []byte(auditPolicy), 0o644); err != nil {
		return nil, err
	}
	if err := n.Install(revision); err != nil {
		return nil, err
	}
	if err := n.startKubelet(); err != nil {
		return nil, err
	}
	if err := n.AwaitAPIServer(ctx, "/readyz", 2*time.Minute); err != nil {
		return nil, err
	}
	c.say("kube-apiserver of %s answers", n.Name)
	if number == 1 {
		if err := n.startControllers(); err != nil {
			return nil, err
		}
		if err := c.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.startNetwork(); err != nil {
		return nil, err
	}
	return n, c.awaitNode(ctx, n.Name)
}

// RemoveNode removes a node without cleanup. Its Node object is left.
func (c *Cluster) RemoveNode(n *Node) error {
	c.mu.Lock()
	for i := range c.nodes {
		if c.nodes[i] == n {
			c.nodes = append(c.nodes[:i:i], c.nodes[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	return n.stop()
}

// SetFirst changes what AddNode installs.
func (c *Cluster) SetFirst(r Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = r
}

// Nodes are all that run, the first one first.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Node(nil), c.nodes...)
}

// Stop ends everything, and removes every trace but what KeepLogs has copied.
func (c *Cluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes() {
		errs = append(errs, n.stop())
	}
	if c.balancer != nil {
		errs = append(errs, c.balancer.Close())
	}
	if c.bridge != nil {
		errs = append(errs, c.bridge.Kill())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// Dial connects to an address as a process of the node does.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return namespaces(n.PID()).dial(ctx, network, address)
}

// RESTConfig is an administrator's, by way of the first node's loopback: it works
// while the network does not.
func (c *Cluster) RESTConfig() (*rest.Config, error) { return c.Nodes()[0].RESTConfig() }

// Dir is the folder, on the host, of everything that the cluster keeps.
func (c *Cluster) Dir() string { return c.dir }

// PID is the id of the node's first process, on the host; 0 while it is off.
func (n *Node) PID() int {
	if first := n.first.Load(); first.Running() {
		return first.PID()
	}
	return 0
}

// Kubeconfig is an administrator's, for a server that leads to kube-apiserver.
func (c *Cluster) Kubeconfig(server string) ([]byte, error) {
	return c.pki.kubeconfig(server, "admin", "system:masters")
}

// RESTConfig is an administrator's of this node's API server.
func (n *Node) RESTConfig() (*rest.Config, error) {
	config, err := n.cluster.pki.restConfig("https://127.0.0.1:6443", "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	config.Dial = n.Dial
	config.QPS, config.Burst = -1, 0
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// exchange swaps two folders in one step.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
