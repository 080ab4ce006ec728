package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// A node's clock can be wrong for programs that test/tools/clocks.sh has linked: for its kubelet, and in all of its
// containers. etcd, containerd and kube-proxy have the host's clock; so have the scheduler and
// kube-controller-manager, which run on the first node.
//
// API servers refuse a ServiceAccount's token before it begins, with a minute's grace, so that one of a server that
// is ahead by more is worth nothing to the others. Where a clock is wrong each node therefore keeps to its own API
// server: its kubelet, which asks for its pods' tokens, and its pods by way of the kubernetes service. Certificates
// begin a day before they are made.

// setClocks sets the node's clock, and its kubelet's unless that would be behind. The times of containers are
// containerd's. A kubelet takes one for younger than its probes' initial delay until its own clock has reached the
// container's start, so with a clock behind it, no new pod is Ready for as long.
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

// writeContainerClock writes what containerd begins each container's specification with: as without a file, it has no
// limits.
func (n *Node) writeContainerClock(ctx context.Context) error {
	if n.ahead == 0 {
		return nil
	}
	spec := `ctr oci spec | sed '/"rlimits"/,/],/c"env": [%q],' >/etc/containerd/spec.json`
	_, err := n.Run(ctx, "sh", "-c", fmt.Sprintf(spec, clockSetting(n.ahead)))
	return err
}

// useOwnServer leads the kubernetes service to the node's own API server. The rules have to precede kube-proxy's,
// which it prepends once it knows the services.
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
