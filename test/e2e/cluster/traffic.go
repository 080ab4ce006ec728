package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Traffic is how many packets a node and its pods have sent to destinations of one kind.
type Traffic struct {
	To      string
	Packets int
	// Outside is what no node of a disconnected cluster sends.
	Outside bool
}

// A destination is what the first of its kind matches. The networks are those of the
// cluster: what a packet is sent to, before kube-proxy chooses a pod.
type destination struct {
	to      string
	outside bool
	match   []string
}

func destinations(program string) []destination {
	if program == "ip6tables" {
		return []destination{
			{"IPv6: loopback", false, []string{"-d", "::1/128"}},
			{"IPv6: neighbor discovery of the kernel", false, []string{"-d", "ff02::/16", "-p", "ipv6-icmp"}},
			{"IPv6: neighbors", false, []string{"-d", "fe80::/10", "-p", "ipv6-icmp"}},
			{"IPv6: anything else", true, nil},
		}
	}
	return []destination{
		// The node's resolv.conf names it, and nothing listens there: a name that only the
		// outside would know.
		{"name server of the node", true, []string{"-d", "127.0.0.0/8", "-p", "udp", "--dport", "53"}},
		{"loopback", false, []string{"-d", "127.0.0.0/8"}},
		{"mirror", false, []string{"-d", balancerIP, "-p", "tcp", "--dport", mirrorPort}},
		{"load balancer of the API servers", false, []string{"-d", balancerIP, "-p", "tcp", "--dport", balancerPort}},
		{"gateway, other ports", true, []string{"-d", balancerIP}},
		{"node network", false, []string{"-d", balancerIP + "/24"}},
		{"pods", false, []string{"-d", podCIDR}},
		{"services", false, []string{"-d", serviceCIDR}},
		{"anything else", true, nil},
	}
}

const (
	trafficChain = "E2E-TRAFFIC"
	// Before any address is translated.
	trafficTable = "raw"
)

// What the node's own processes send, those of pods on its network too; and what comes
// from the pods on a network of their own.
var trafficHooks = [][]string{{"OUTPUT"}, {"PREROUTING", "-i", "cni0"}}

var trafficPrograms = []string{"iptables", "ip6tables"}

// CountTraffic starts to count.
func (n *Node) CountTraffic(ctx context.Context) error {
	for _, program := range trafficPrograms {
		rules := [][]string{{"-N", trafficChain}}
		for _, d := range destinations(program) {
			rules = append(rules, append(append([]string{"-A", trafficChain}, d.match...), "-j", "RETURN"))
		}
		for _, hook := range trafficHooks {
			rules = append(rules, append(append([]string{"-A"}, hook...), "-j", trafficChain))
		}
		for _, rule := range rules {
			if err := n.iptables(ctx, program, rule...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) iptables(ctx context.Context, program string, args ...string) error {
	_, err := n.Run(ctx, program, append([]string{"--wait", "-t", trafficTable}, args...)...)
	return err
}

// Traffic is what was sent since CountTraffic, or since RestartTraffic.
func (n *Node) Traffic(ctx context.Context) ([]Traffic, error) {
	var all []Traffic
	for _, program := range trafficPrograms {
		out, err := n.Run(ctx, program, "--wait", "-t", trafficTable, "-nvxL", trafficChain)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		kinds := destinations(program)
		const header = 2
		if len(lines) != header+len(kinds) {
			return nil, fmt.Errorf("%s lists %d rules, want %d: %s", program, len(lines)-header, len(kinds), out)
		}
		for i, d := range kinds {
			packets, err := strconv.Atoi(strings.Fields(lines[header+i])[0])
			if err != nil {
				return nil, err
			}
			all = append(all, Traffic{d.to, packets, d.outside})
		}
	}
	return all, nil
}

// RestartTraffic sets all counters to zero.
func (n *Node) RestartTraffic(ctx context.Context) error {
	var errs []error
	for _, program := range trafficPrograms {
		errs = append(errs, n.iptables(ctx, program, "-Z", trafficChain))
	}
	return errors.Join(errs...)
}

// StopTraffic removes them.
func (n *Node) StopTraffic(ctx context.Context) error {
	var errs []error
	for _, program := range trafficPrograms {
		for _, hook := range trafficHooks {
			errs = append(errs, n.iptables(ctx, program, append(append([]string{"-D"}, hook...), "-j", trafficChain)...))
		}
		errs = append(errs, n.iptables(ctx, program, "-F", trafficChain), n.iptables(ctx, program, "-X", trafficChain))
	}
	return errors.Join(errs...)
}

// Dial connects to an address as the process does.
func (p Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return namespaces(p.PID).dial(ctx, network, address)
}
