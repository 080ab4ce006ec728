package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
)

func (n *Node) startEtcd(ctx context.Context) error {
	daemon, err := n.daemon("etcd", binariesDir+"/etcd", "--name=default", "--data-dir=/var/lib/etcd",
		"--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://"+n.IP.String()+":2379",
		// Without fsync nothing is lost by SIGKILL or PowerCut: etcd writes its log before it answers, and the host's kernel
		// keeps the data. Only a power loss of the host would lose it.
		"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn")
	if err != nil {
		return err
	}
	client, err := n.etcd()
	if err != nil {
		return err
	}
	defer client.Close()
	return n.awaitDaemon(ctx, daemon, func(ctx context.Context) error {
		_, err := client.Get(ctx, "/registry/health")
		return err
	})
}

// RestartEtcd restarts etcd. Only the first node has it.
func (n *Node) RestartEtcd() error { return n.restart("etcd", n.startEtcd) }

func (n *Node) startControllers(context.Context) error {
	scheduler := n.keep("kube-scheduler", binariesDir+"/kube-scheduler",
		"--kubeconfig="+pkiDir+"/kube-scheduler.kubeconfig", "--authentication-kubeconfig="+pkiDir+"/kube-scheduler.kubeconfig",
		"--authorization-kubeconfig="+pkiDir+"/kube-scheduler.kubeconfig", "--leader-elect=false")
	return errors.Join(scheduler, n.keep("kube-controller-manager", binariesDir+"/kube-controller-manager",
		"--kubeconfig="+pkiDir+"/kube-controller-manager.kubeconfig",
		"--authentication-kubeconfig="+pkiDir+"/kube-controller-manager.kubeconfig", "--authorization-kubeconfig="+pkiDir+"/kube-controller-manager.kubeconfig",
		"--controllers=*,-node-ipam-controller,-cloud-node-lifecycle-controller,-service-lb-controller",
		"--use-service-account-credentials=true", "--root-ca-file="+pkiDir+"/root-ca.crt", "--service-account-private-key-file="+pkiDir+"/sa.key",
		"--cluster-signing-cert-file="+pkiDir+"/ca.crt", "--cluster-signing-key-file="+pkiDir+"/ca.key",
		// It is the only one, and without an election it is back sooner after an outage of the API server.
		"--leader-elect=false"))
}

// EtcdClient returns a client of the first node's etcd, without the API server.
func (c *Cluster) EtcdClient() (*clientv3.Client, error) { return c.Nodes()[0].etcd() }

func (n *Node) etcd() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{"http://127.0.0.1:2379"}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return n.Dial(ctx, "tcp", address)
		})},
	})
}

// Etcd returns the stored keys and values below a prefix. Values may be encrypted.
func (c *Cluster) Etcd(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
	client, err := c.EtcdClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	return answer.Kvs, nil
}

// Kubectl runs kubectl in the first node, as an administrator, and returns its output.
// stdin may be empty.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	args = append([]string{"--kubeconfig=" + c.admin}, args...)
	cmd := exec.Command(binariesDir+"/kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	return run(ctx, namespaces(c.Nodes()[0].PID()), cmd, allNamespaces...)
}

// ApplyFiles applies files of the host.
func (c *Cluster) ApplyFiles(ctx context.Context, files ...string) error {
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.WriteString("---\n" + string(content) + "\n")
	}
	_, err := c.Kubectl(ctx, all.String(), "apply", "--server-side", "-f", "-")
	return err
}

func (c *Cluster) awaitNode(ctx context.Context, name string) error {
	err := wait.For(ctx, 2*time.Minute, "the registration of node "+name, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "", "label", "--overwrite", "node", name,
			"node-role.kubernetes.io/control-plane=", "node-role.kubernetes.io/master=")
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node/"+name, "--timeout=5m")
	return err
}

// prepare makes the cluster look like OpenShift to clients that read its resources.
func (c *Cluster) prepare(ctx context.Context) error {
	operators, err := controlplane.OperatorCRDs(controlplane.TechPreviewNoUpgrade)
	if err != nil {
		return err
	}
	configs, err := controlplane.ConfigCRDs(controlplane.TechPreviewNoUpgrade)
	if err != nil {
		return err
	}
	if err := c.ApplyFiles(ctx, slices.Concat(operators, configs)...); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=2m"); err != nil {
		return err
	}
	// Discovery shows the CRDs only a moment after they are Established.
	err = wait.For(ctx, 2*time.Minute, "OpenShift's resources are applied", func(context.Context) error {
		_, err := c.Kubectl(ctx, string(file("openshift.yaml", contract.Resources)), "apply", "--server-side", "-f", "-")
		return err
	})
	if err == nil {
		_, err = c.Kubectl(ctx, "", "patch", "infrastructures.config.openshift.io", "cluster", "--subresource=status",
			"--type=merge",
			"-p", infrastructureStatus)
	}
	c.Say("OpenShift's resources are there")
	return err
}

const infrastructureStatus = `{"status": {"controlPlaneTopology": "HighlyAvailable", "infrastructureTopology": "HighlyAvailable", ` +
	`"infrastructureName": "e2e", "apiServerURL": "", "apiServerInternalURI": "", "etcdDiscoveryDomain": "", "cpuPartitioning": "None", "platform": "None", "platformStatus": {"type": "None"}}}`
