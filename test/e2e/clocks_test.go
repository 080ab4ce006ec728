//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// ahead are the errors of the nodes' clocks, see cluster.Options.
var ahead []time.Duration

func init() {
	flag.Func("ahead", "how far the clocks of three nodes are ahead, such as 0s,20m,-3m; make test-e2e-clocks",
		func(text string) error {
			for part := range strings.SplitSeq(text, ",") {
				by, err := time.ParseDuration(part)
				if err != nil {
					return err
				}
				ahead = append(ahead, by)
			}
			return nil
		})
}

// everyHalfMinute is the configuration with the default interval, as in production.
var everyHalfMinute = strings.Replace(fixture.Configuration, "interval: 1s", "interval: 30s", 1)

// No action of an administrator on healthy plugins is an alarm, although the clocks of two nodes are wrong. This
// includes the clocks of their kubelets, API servers, plugins and reporters, and of an operator there.
//
// A kubelet whose clock is behind its container runtime's makes no new pod Ready until it has caught up. So the third
// node's kubelet has a wrong clock during two events only.
func TestWrongClocksOnThreeNodes(t *testing.T) {
	if len(ahead) != 3 {
		t.Skip("it takes half an hour, and programs built for it: make test-e2e-clocks")
	}
	h := start(t, 3, everyHalfMinute)
	t.Logf("clocks are ahead by %v\n%-50s %8s %9s %9s", ahead, "event", "took", "Degraded", "Reporting")
	second, third := h.Nodes()[1], h.Nodes()[2]
	// All sidecars share a token with times by the clock of the operator's API server. If that is ahead, the others refuse
	// the token at first. So the operator begins at the server whose clock is behind.
	h.lead(third)
	for _, e := range []part{
		{name: "KMS turned on", run: func(h *scenario) { h.must(h.TurnOn(h.ctx)) }},
		{name: "leader moved to the second node", run: func(h *scenario) { h.lead(second) }},
		{name: "KEK rotated", run: (*scenario).rotate},
		{name: "key migrated, by three revisions", run: (*scenario).migrate},
		{name: "operator's configuration edited", run: (*scenario).edit},
		{name: "leader killed", run: (*scenario).killLeader},
		{name: "kubelets restarted, the third one's clock wrong", run: (*scenario).restartKubelets},
		{name: "API servers killed, one after the other", run: (*scenario).killAPIServers},
		{name: "third kubelet restarted, its clock right", run: func(h *scenario) { h.must(third.RestartKubeletAhead(0)) }},
		{name: "second node drained", run: func(h *scenario) { h.drain(second) }},
		{name: "third node rebooted", run: func(h *scenario) { h.powerCycle(third) }},
		{name: "leader moved to the third node", run: func(h *scenario) { h.lead(third) }},
		{name: surging, run: (*scenario).surge},
		{name: "", run: (*scenario).sealEach},
		{name: "KMS turned off", run: (*scenario).turnOff},
	} {
		if e.name == "" { // alarms with a cause are expected
			h.parts(part{name: "plugins sealed", run: e.run})
			continue
		}
		began := time.Now()
		h.parts(part{name: e.name, run: func(h *scenario) {
			e.run(h)
			h.leader() // without a leader no condition would change
			if e.name != "KMS turned off" {
				h.awaitHealthy()
			}
		}})
		degraded := h.longest(began, noAlarm)
		silent := max(0, h.longest(began, func(s fixture.State) error {
			// Two API server pods on a node are reported after 5 minutes.
			if e.name == surging && s.Is(contract.HealthReporting, "False", contract.SeveralPods) == nil {
				return nil
			}
			if c := s.Conditions[contract.HealthReporting]; c.Status == operatorstatus.False {
				return fmt.Errorf("%s: KMSHealthReporting is False (%s): %s", s.Server.Name, c.Reason, c.Message)
			}
			return nil
		})-inertia)
		row := fmt.Sprintf("%-50s %8s %9s %9s", e.name, time.Since(began).Round(time.Second),
			degraded.Round(time.Millisecond), silent.Round(time.Millisecond))
		t.Log(row)
		if degraded+silent > 0 {
			t.Errorf("false alarm: %s", row)
		}
	}
}

const surging = "surge of openshift-apiserver stuck, and undone"

// lead moves the operator to a node by new pods.
func (h *scenario) lead(n *cluster.Node) {
	for _, other := range h.Nodes() {
		if other != n {
			h.kubectlOf(n, "cordon", other.Name)
		}
	}
	for _, p := range h.operators() {
		if p.Spec.NodeName != n.Name {
			h.kubectlOf(h.nodeNamed(p.Spec.NodeName), "-n", p.Namespace, "delete", "pod", p.Name)
		}
	}
	h.must(h.AwaitOperator(h.ctx))
	for _, other := range h.Nodes() {
		h.kubectlOf(n, "uncordon", other.Name)
	}
	h.leader(n)
}

// kubectlOf uses the API server of a node. With another server's clock, a pod's deletion could seem long ago to the
// node's server, which would then refuse the pod's token at once. The operator could not release its lease, and others
// would wait for 2m43s.
func (h *scenario) kubectlOf(n *cluster.Node, args ...string) {
	h.kubectl(append([]string{"--server=https://" + n.IP.String() + ":6443"}, args...)...)
}

// reports waits until each report of some API servers passes a check.
func (h *scenario) reports(limit time.Duration, what string, check func(contract.Entry) bool,
	servers ...apiservers.Server) {
	h.await(limit, what, func() error {
		for _, server := range servers {
			s := h.now(server)
			if len(s.Reports) != len(h.Nodes()) {
				return fmt.Errorf("%s: %d nodes report", server.Name, len(s.Reports))
			}
			for node, entries := range s.Reports {
				if len(entries) == 0 || !check(entries[0]) {
					return fmt.Errorf("%s: %s reports %+v", server.Name, node, entries)
				}
			}
		}
		return nil
	})
}

func (h *scenario) rotate() {
	old := h.remoteKey(h.node())
	command := "rotate"
	for _, n := range h.Nodes() {
		h.do(h.pluginOn(n), command)
		command = "refresh" // the plugins share the key
	}
	h.reports(2*time.Minute, "all reports have the new KEK ID",
		func(e contract.Entry) bool { return e.KEKID != "" && e.KEKID != old }, apiservers.Kube)
}

func (h *scenario) migrate() {
	h.migrateTo("2", func(keys ...string) {
		h.reports(waitLimit, "all reports begin with key "+keys[0],
			func(e contract.Entry) bool { return e.KeyID == keys[0] }, apiservers.Kube)
		h.awaitHealthy(apiservers.Kube)
	})
}

func (h *scenario) edit() {
	h.must(h.Configure(h.ctx, strings.Replace(everyHalfMinute, "30s", "20s", 1)))
	h.reports(4*time.Minute, "all reports have the new interval",
		func(e contract.Entry) bool { return e.Interval == 20*time.Second }, apiservers.All...)
}

func (h *scenario) killLeader() {
	leader := h.leader()
	h.must(h.nodeNamed(leader.Spec.NodeName).SignalContainer(h.ctx, leader.Name, operatorContainer, syscall.SIGKILL))
	time.Sleep(inertia) // the new process has not seen the reports change
	h.must(h.AwaitOperator(h.ctx))
}

func (h *scenario) restartKubelets() {
	for i, n := range h.Nodes() {
		h.must(n.RestartKubeletAhead(ahead[i]))
	}
	time.Sleep(time.Minute)
}

func (h *scenario) killAPIServers() {
	for _, n := range h.Nodes() {
		h.must(n.SignalContainer(h.ctx, cluster.APIServerName+"-", cluster.APIServerName, syscall.SIGKILL))
		h.must(n.AwaitAPIServer(h.ctx, "/readyz"))
	}
}

func (h *scenario) drain(n *cluster.Node) {
	h.kubectlOf(n, "drain", n.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
	time.Sleep(time.Minute)
	h.kubectlOf(n, "uncordon", n.Name)
}

func (h *scenario) powerCycle(n *cluster.Node) {
	h.must(n.PowerCut())
	time.Sleep(20 * time.Second)
	h.must(n.PowerOn(h.ctx))
	h.must(n.AwaitAPIServer(h.ctx, "/readyz"))
	h.awaitReady(n, corev1.ConditionTrue)
}

// surge keeps a second API server pod on the node for longer than reports are excused. Only its readiness probe fails.
// kube-apiserver cannot have two pods on a node, because a static pod is replaced.
func (h *scenario) surge() {
	probe := func(path string) {
		h.kubectlOf(h.node(), "-n", apiservers.OpenShift.Namespace, "patch", "deployment", "apiserver", "--type=json", "-p",
			`[{"op": "replace", "path": "/spec/template/spec/containers/0/readinessProbe/httpGet/path", "value": "`+path+`"}]`)
	}
	probe("/never")
	time.Sleep(6 * time.Minute)
	probe("/readyz")
	h.must(h.AwaitDeployment(h.ctx, apiservers.OpenShift.Namespace, "apiserver"))
}

// sealEach makes the plugin of each node unhealthy, one after another. Only that node must be reported.
func (h *scenario) sealEach() {
	const bound = 20*time.Second + 15*time.Second // the interval, and the usual bound
	for _, n := range h.Nodes() {
		h.seal(apiservers.Kube, h.pluginOn(n), bound, "key 2 on node "+n.Name)
		h.heal(apiservers.Kube, h.pluginOn(n), bound)
	}
	h.awaitHealthy()
}

func (h *scenario) turnOff() {
	h.must(h.Roll(h.ctx, fixture.Roll{Encryption: apiservers.Encryption("identity", "2"), Plugins: []string{"2"}}))
	h.must(h.WriteAnew(h.ctx))
	h.must(h.Roll(h.ctx, fixture.Roll{}))
	h.must(h.AggregateOff(h.ctx))
	h.await(3*time.Minute, "nothing of ours is left in the cluster", h.nothingLeft)
}
