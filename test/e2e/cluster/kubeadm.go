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

// AdminConfig is the path in a node of the administrator's kubeconfig that kubeadm writes.
const AdminConfig = "/etc/kubernetes/admin.conf"

const kubeadmFile = "/etc/kubernetes/kubeadm.yaml"

// StartKubeadm starts a cluster of one node by `kubeadm init`. apiServer is the YAML of the field apiServer in the
// ClusterConfiguration. files are written to the node before, by path. kubeadm's output is in /var/log/kubeadm.log
// there.
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

// kubeadmImages makes the images that kubeadm lists, and imports all images.
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
		if program == "pause" { // kubeadm only checks that it exists; containerd uses another one
			i.Files = map[string]string{"/hold": filepath.Join(n.cluster.dir, "hold")}
		}
		if err := n.cluster.addImage(ctx, name, i); err != nil {
			return err
		}
	}
	return nil
}

// kubeadmInit runs kubeadm, and starts the kubelet once kubeadm waits for it, because there is no systemd.
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

// KubeadmAPIServer makes kubeadm write kube-apiserver's manifest again, as in an upgrade.
func (n *Node) KubeadmAPIServer(ctx context.Context, apiServer string) error {
	if err := n.writeKubeadmFile(ctx, apiServer); err != nil {
		return err
	}
	_, err := n.kubeadm(ctx, "init", "phase", "control-plane", "apiserver", "--config", kubeadmFile)
	return err
}

// KubeadmReset ends the kubelet, as systemd would, and undoes kubeadm init. It returns kubeadm's output.
func (n *Node) KubeadmReset(ctx context.Context) (string, error) {
	if err := n.restart("kubelet", func(context.Context) error { return nil }); err != nil {
		return "", err
	}
	return n.kubeadm(ctx, "reset", "--force")
}

// Containers returns the ids of the node's containers, one a line.
func (n *Node) Containers(ctx context.Context) (string, error) {
	return n.ctr(ctx, "containers", "list", "--quiet")
}

// Import imports an image from an archive on the host.
func (n *Node) Import(ctx context.Context, archive string) error {
	known := filepath.Join(n.cluster.dir, "images", filepath.Base(archive))
	if out, err := exec.CommandContext(ctx, "cp", archive, known).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return n.importArchive(ctx, known)
}

// RunOnHost runs a command with the host's files in the node's network. cmd must have its folder and environment. It
// can reach only the cluster.
func (n *Node) RunOnHost(ctx context.Context, cmd *exec.Cmd) (string, error) {
	return run(ctx, namespaces(n.PID()), cmd, "net")
}
