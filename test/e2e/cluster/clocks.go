package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// A node's clock can be wrong for programs that test/tools/clocks.sh has linked: the kubelet, and programs in
// containers. etcd, containerd and kube-proxy have the host's clock, and so do the scheduler and
// kube-controller-manager, which run on the first node.
//
// API servers refuse a ServiceAccount's token before it is valid, with a minute's grace. If a server's clock is ahead
// by more, the other servers refuse its tokens. So each node uses only its own API server: its kubelet, which requests
// the pods' tokens, and its pods by the kubernetes service. Certificates are valid from a day before they were signed.

// setClocks sets the clock of the node, and of its kubelet unless that would be behind. Start times of containers are
// by containerd's clock. With a clock behind that, a kubelet takes a container as younger than its probes' initial
// delay, so no new pod would become Ready until the kubelet's clock has caught up.
func (n *Node) setClocks() {
	if ahead := n.cluster.options.Ahead; n.index <= len(ahead) {
		n.ahead = ahead[n.index-1]
		n.kubelet = max(0, n.ahead)
	}
}

// RestartKubeletAhead restarts the kubelet with another clock.
func (n *Node) RestartKubeletAhead(by time.Duration) error {
	n.kubelet = by
	return n.RestartKubelet()
}

func clockSetting(ahead time.Duration) string {
	return fmt.Sprintf("CLOCK_AHEAD=%d", int(ahead.Seconds()))
}

// writeContainerClock writes the base of all container specifications, with the clock in the environment. It removes
// the rlimits, which containerd does not set without such a file.
func (n *Node) writeContainerClock(ctx context.Context) error {
	if n.ahead == 0 {
		return nil
	}
	spec := `ctr oci spec | sed '/"rlimits"/,/],/c"env": [%q],' >/etc/containerd/spec.json`
	_, err := n.Run(ctx, "sh", "-c", fmt.Sprintf(spec, clockSetting(n.ahead)))
	return err
}

// useOwnServer redirects the kubernetes service to the node's own API server. The rules must precede kube-proxy's,
// which kube-proxy inserts once it knows the services.
func (n *Node) useOwnServer(ctx context.Context) error {
	if len(n.cluster.options.Ahead) == 0 {
		return nil
	}
	for _, chain := range []string{"OUTPUT", "PREROUTING"} {
		iptables := func(ctx context.Context, action string, rule ...string) error {
			_, err := n.Run(ctx, "iptables", append([]string{"--wait", "--table=nat", action, chain}, rule...)...)
			return err
		}
		if err := wait.For(ctx, 5*time.Minute, "kube-proxy's rules on "+n.Name, func(ctx context.Context) error {
			return iptables(ctx, "--check", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES")
		}); err != nil {
			return err
		}
		if err := iptables(ctx, "--insert", "-d", serviceIP+"/32", "-p", "tcp", "--dport", "443", "-j", "DNAT",
			"--to-destination", n.IP.String()+":6443"); err != nil {
			return err
		}
	}
	return nil
}
