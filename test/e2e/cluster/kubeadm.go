package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/harness/image"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// AdminConfig is the administrator's kubeconfig that kubeadm writes, in a node.
const AdminConfig = "/etc/kubernetes/admin.conf"

const kubeadmFile = "/etc/kubernetes/kubeadm.yaml"

// StartKubeadm starts a cluster of one node by `kubeadm init`. apiServer is that field of its ClusterConfiguration. The
// files of the node, by their paths, are there before. kubeadm's output is in the node's /var/log/kubeadm.log.
func StartKubeadm(ctx context.Context, options Options, apiServer string, files map[string][]byte) (*Cluster, error) {
	options.Nodes, options.kubeadm = 1, true
	return start(ctx, options, func(c *Cluster) error {
		n, err := c.newNode(1)
		if err != nil {
			return err
		}
		c.admin, c.nodes = AdminConfig, []*Node{n}
		for _, step := range []func(context.Context) error{n.startFirst, n.connect, n.startContainerd} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		if err := errors.Join(n.writeKubeadmFile(ctx, apiServer), n.kubeadmImages(ctx)); err != nil {
			return err
		}
		for path, content := range files {
			if err := n.WriteFile(path, content, 0o600); err != nil {
				return err
			}
		}
		if err := n.kubeadmInit(ctx); err != nil {
			return err
		}
		c.Say("kubeadm init has ended")
		if err := n.startNetworkAs(ctx, AdminConfig); err != nil {
			return err
		}
		_, err = c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node/"+n.Name, "--timeout=5m")
		return err
	})
}

func (n *Node) kubeadm(ctx context.Context, args ...string) (string, error) {
	return n.Run(ctx, binariesDir+"/kubeadm", args...)
}

func (n *Node) writeKubeadmFile(ctx context.Context, apiServer string) error {
	version, err := n.kubeadm(ctx, "version", "-o", "short")
	if err != nil {
		return err
	}
	content := file("kubeadm.yaml", struct {
		Node               *Node
		Version, APIServer string
	}{n, strings.TrimSpace(version), apiServer})
	return n.WriteFile(kubeadmFile, slices.Concat(content, file("kubelet.yaml", nil)), 0o600)
}

// kubeadmImages makes the images that kubeadm names, and imports all.
func (n *Node) kubeadmImages(ctx context.Context) error {
	names, err := n.kubeadm(ctx, "config", "images", "list", "--config", kubeadmFile)
	if err != nil {
		return err
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		program, _, _ := strings.Cut(path.Base(name), ":")
		i := &image.Image{Files: map[string]string{"/usr/local/bin/" + program: n.cluster.asset(program)}}
		if program == "pause" { // containerd's is used: kubeadm only asks whether there is one
			i.Files = map[string]string{"/hold": filepath.Join(n.cluster.dir, "hold")}
		}
		if err := n.cluster.addImage(ctx, name, i); err != nil {
			return err
		}
	}
	return nil
}

// kubeadmInit runs kubeadm, and the kubelet once kubeadm waits for it: there is no systemd to start it.
func (n *Node) kubeadmInit(ctx context.Context) error {
	kubeadm, err := n.daemon("kubeadm", binariesDir+"/kubeadm", "init", "--config="+kubeadmFile,
		"--ignore-preflight-errors=all")
	if err != nil {
		return err
	}
	log := func() string {
		out, _ := os.ReadFile(filepath.Join(n.dir, "log/kubeadm.log"))
		return string(out)
	}
	err = wait.For(ctx, 5*time.Minute, "kubeadm waits for the kubelet", func(context.Context) error {
		if !kubeadm.Running() {
			return wait.Final(fmt.Errorf("kubeadm ended: %w", kubeadm.Err()))
		}
		if !strings.Contains(log(), "[kubelet-start] Starting the kubelet") {
			return errors.New("it does not yet")
		}
		return nil
	})
	if err == nil {
		_, err = n.daemon("kubelet", "sh", "-c", ". /var/lib/kubelet/kubeadm-flags.env && exec kubelet "+
			"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS")
	}
	if err == nil {
		select {
		case <-kubeadm.Done():
			err = kubeadm.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("kubeadm init: %w:\n%s", err, log())
	}
	return nil
}

// KubeadmAPIServer writes kube-apiserver's manifest anew, as an upgrade does.
func (n *Node) KubeadmAPIServer(ctx context.Context, apiServer string) error {
	if err := n.writeKubeadmFile(ctx, apiServer); err != nil {
		return err
	}
	_, err := n.kubeadm(ctx, "init", "phase", "control-plane", "apiserver", "--config", kubeadmFile)
	return err
}

// KubeadmReset ends the kubelet, which is systemd's part, and undoes kubeadm init. It returns what kubeadm printed.
func (n *Node) KubeadmReset(ctx context.Context) (string, error) {
	if err := n.restart("kubelet", func(context.Context) error { return nil }); err != nil {
		return "", err
	}
	return n.kubeadm(ctx, "reset", "--force")
}

// Containers are those that the node's container runtime has, one a line.
func (n *Node) Containers(ctx context.Context) (string, error) {
	return n.ctr(ctx, "containers", "list", "--quiet")
}

// Import imports an image's archive of the host.
func (n *Node) Import(ctx context.Context, archive string) error {
	known := filepath.Join(n.cluster.dir, "images", filepath.Base(archive))
	if out, err := exec.CommandContext(ctx, "cp", archive, known).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return n.importArchive(ctx, known)
}

// RunOnHost runs a command of the host, which has its folder and environment, in the node's network: it reaches the
// API server and nothing else.
func (n *Node) RunOnHost(ctx context.Context, cmd *exec.Cmd) (string, error) {
	return run(ctx, namespaces(n.PID()), cmd, "net")
}
