package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
)

func (n *Node) startEtcd(ctx context.Context) error {
	etcd, err := n.daemon("etcd", binariesDir+"/etcd", "--name=default", "--data-dir=/var/lib/etcd",
		"--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://"+n.IP.String()+":2379",
		// Without fsync nothing is lost when it is killed, also by PowerCut: it has written its
		// log before it answers, and the host keeps what was written. It would be lost when
		// the host itself lost power.
		"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn")
	if err != nil {
		return err
	}
	return n.awaitDaemon(ctx, etcd, func(ctx context.Context) error {
		_, err := n.etcdRange(ctx, "/registry/health")
		return err
	})
}

// RestartEtcd restarts etcd, which the first node has.
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
		// It is alone, and is to be back soon after an API server.
		"--leader-elect=false"))
}

// KV is what etcd holds of one object: bytes, which are encrypted or not.
type KV struct {
	Key, Value []byte
}

// Etcd returns what etcd holds below a prefix, past the API server.
func (c *Cluster) Etcd(ctx context.Context, prefix string) ([]KV, error) {
	return c.Nodes()[0].etcdRange(ctx, prefix)
}

func (n *Node) etcdRange(ctx context.Context, prefix string) ([]KV, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := n.askEtcd(ctx, "/v3/kv/range", below(prefix))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var answer struct{ KVs []KV }
	err = json.NewDecoder(body).Decode(&answer)
	return answer.KVs, err
}

// EtcdWatch watches what is below a prefix, in the first node's etcd, from a revision on; 0: from now on. It returns
// the answers, a line of JSON each.
func (c *Cluster) EtcdWatch(ctx context.Context, prefix string, revision int64) (io.ReadCloser, error) {
	watch := below(prefix)
	watch["start_revision"] = revision
	return c.Nodes()[0].askEtcd(ctx, "/v3/watch", map[string]any{"create_request": watch})
}

// below selects the keys with a prefix.
func below(prefix string) map[string]any {
	end := []byte(prefix)
	end[len(end)-1]++
	return map[string]any{"key": []byte(prefix), "range_end": end} // JSON has them in base64, as etcd does
}

func (n *Node) askEtcd(ctx context.Context, path string, question map[string]any) (io.ReadCloser, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:2379"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.Dial}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return nil, errors.Join(fmt.Errorf("etcd: %s: %s", response.Status, answer), err)
	}
	return response.Body, nil
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
	// Discovery has them a moment after they are Established.
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
