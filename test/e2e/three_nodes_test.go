//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// kubeOnly is the operator's configuration with kube-apiserver alone.
var kubeOnly = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\nprobe: {interval: 1s}\napiServers:\n" +
	apiservers.Kube.Target()

func testThreeOn(h *scenario) {
	start := time.Now()
	h.must(h.Roll(h.ctx, fixture.Roll{Encryption: apiservers.Encryption("identity", "1"), Plugins: []string{"1"}}))
	h.must(h.Roll(h.ctx, fixture.Roll{Encryption: apiservers.Encryption("1", "identity"), Plugins: []string{"1"}}))
	h.must(h.WriteAnew(h.ctx))
	h.awaitHealthy(apiservers.Kube)

	var now fixture.State
	var agreed struct{ KeyID, KEKID string }
	h.await(rollup.SettlePeriod+waitLimit, "the key is settled", func() error {
		now = h.now(apiservers.Kube)
		return now.Is(contract.WriteKeyAgreed, "True", contract.AsExpected)
	})
	message, remote := now.Conditions[contract.WriteKeyAgreed].Message, h.remoteKey(h.node())
	if err := json.Unmarshal([]byte(message), &agreed); err != nil || agreed.KeyID != "1" || agreed.KEKID != remote {
		h.t.Errorf("agreed on %s (%v), wanted key 1 and %s", message, err, remote)
	}
	if got, want := now.Conditions[contract.PluginsDegraded].Message, "every plugin is healthy on 3 nodes"; got != want {
		h.t.Errorf("%q, wanted %q", got, want)
	}
	h.noLongAlarm(start)
	// After an API server's restart an informer reads again within half a minute.
	h.await(2*time.Minute, "ClusterOperator kms-health is healthy", h.clusterOperator)

	var on []string
	for _, pod := range h.operators() {
		on = append(on, pod.Spec.NodeName)
	}
	slices.Sort(on)
	if len(on) != 2 || on[0] == on[1] {
		h.t.Errorf("the operator's replicas are on %v, wanted two nodes", on)
	}
}

// The lease's holder is the pod's name, so a restarted container need not wait until the lease expires.
func testLeaderKilled(h *scenario) {
	lease := h.lease()
	leader := h.leader()
	n := h.nodeNamed(leader.Spec.NodeName)
	before, err := n.Processes(h.ctx, leader.Name, operatorContainer)
	h.must(err)
	start := time.Now()
	h.must(n.SignalContainer(h.ctx, leader.Name, operatorContainer, syscall.SIGKILL))
	// The fault happens while the leader is down.
	failing := h.Nodes()[2]
	p := h.pluginOn(failing)
	want := fmt.Sprintf(`key 1 on node %s: unhealthy: healthz is "vault is sealed", not "ok"`, failing.Name)
	unhealthy := h.seal(apiservers.Kube, p, 2*time.Minute, want)
	h.awaitSince(start, time.Minute, "no other node is named", func(s fixture.State) error {
		if got := s.Conditions[contract.PluginsDegraded].Message; got != want {
			return errors.New(got)
		}
		return s.Is(contract.WriteKeyAgreed, "Unknown", contract.PluginUnhealthy)
	})
	after, err := n.Processes(h.ctx, leader.Name, operatorContainer)
	h.must(err)
	if len(after) != 1 || len(before) != 1 || after[0].PID == before[0].PID {
		h.t.Fatalf("the leader was %v, and is %v", before, after)
	}
	h.took("the new container's start to Degraded", unhealthy.At.Sub(after[0].Started), 30*time.Second)

	now := h.lease()
	if *now.Spec.HolderIdentity != leader.Name || *now.Spec.LeaseTransitions != *lease.Spec.LeaseTransitions {
		h.t.Errorf("the lease went from %s to %s in %d transitions", *lease.Spec.HolderIdentity, *now.Spec.HolderIdentity,
			*now.Spec.LeaseTransitions-*lease.Spec.LeaseTransitions)
	}
	if !now.Spec.RenewTime.After(start) {
		h.t.Errorf("the lease was renewed at %v, and not since %v", now.Spec.RenewTime, start)
	}
	h.heal(apiservers.Kube, p, time.Minute)
}

// A node loses its network: its API server cannot write, and no other node can reach it.
func testNetworkCut(h *scenario) {
	// Neither the leader's node nor etcd's, whose failure would be another test.
	n := h.nodeBeside(h.leader().Spec.NodeName)
	p := h.pluginOn(n)
	time.Sleep(rollup.QuietPeriod) // shortly after a rollout missing reports are excused
	h.awaitHealthy(apiservers.Kube)
	before, calls := h.allPIDs(n), h.statusCalls(p).Count
	cut := time.Now()
	h.must(n.CutNetwork(h.ctx))

	// Once the Node is not Ready, the last verdict stays: the Node's own condition shows the problem.
	h.awaitReady(n, corev1.ConditionUnknown)
	excused := func(s fixture.State) error {
		return errors.Join(
			s.Is(contract.PluginsDegraded, "False", contract.AsExpected),
			s.Is(contract.HealthReporting, "Unknown", contract.ReporterStale),
			s.Is(contract.WriteKeyAgreed, "Unknown", contract.ReporterStale),
		)
	}
	// If the operator used the lost API server, it excuses missing reports for a minute.
	h.await(time.Minute, "what was reported last stays", func() error { return excused(h.now(apiservers.Kube)) })
	message, want := h.now(apiservers.Kube).Conditions[contract.HealthReporting].Message, "node "+n.Name+": stopped reporting; the Node is not Ready"
	if !slices.Contains(strings.Split(message, "\n"), want) {
		h.t.Errorf("%q, wanted %q", message, want)
	}

	// The verdict stays for a while. To the reporter, only the API server is unreachable.
	time.Sleep(time.Until(cut.Add(80 * time.Second)))
	if err := excused(h.now(apiservers.Kube)); err != nil {
		h.t.Error(err)
	}
	// kube-apiserver calls the plugin about every 20 s, the reporter each second.
	if probed, least := h.statusCalls(p).Count-calls, int64(time.Since(cut).Seconds()/2); probed < least {
		h.t.Errorf("the plugin got %d calls without a network, must be at least %d", probed, least)
	}
	restore := time.Now()
	h.must(n.RestoreNetwork(h.ctx))
	answered := h.awaitWrites(n)
	fresh := h.awaitSince(restore, time.Minute, n.Name+" reports again", func(s fixture.State) error {
		return s.Fresh(n.Name, restore.Add(-interval))
	})
	h.took("answering to a fresh condition", fresh.At.Sub(answered), retryBound)
	h.awaitHealthy(apiservers.Kube)
	h.always(apiservers.Kube, cut, notDegraded)
	h.always(apiservers.Kube, cut, func(s fixture.State) error { // the operator's watch may use the lost API server
		c := s.Conditions[contract.PluginsDegraded]
		for _, other := range h.Nodes() {
			if other.Name != n.Name && strings.Contains(c.Message, "node "+other.Name+":") {
				return fmt.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
			}
		}
		return nil
	})
	h.awaitReady(n, corev1.ConditionTrue)
	h.untouched(n, before)
}

// A node is lost, and another one takes its name.
func testNodeReplaced(h *scenario) {
	n := h.nodeBeside(h.leader().Spec.NodeName)
	number := int(n.Name[len(n.Name)-1] - '0')
	fire := time.Now()
	h.must(h.RemoveNode(n))
	gone := time.Now()
	h.must(h.Kube.CoreV1().Nodes().Delete(h.ctx, n.Name, metav1.DeleteOptions{}))
	without := h.awaitSince(gone, time.Minute, "the removed node's entry is deleted", func(s fixture.State) error {
		if _, there := s.Reports[n.Name]; there {
			return fmt.Errorf("%s has its entry", n.Name)
		}
		return nil
	})
	h.took("the Node is deleted: its entry is deleted", without.At.Sub(gone), 10*time.Second)
	h.await(waitLimit, "two nodes are healthy", func() error {
		now := h.now(apiservers.Kube)
		if len(now.Reports) != 2 {
			return fmt.Errorf("%d nodes report", len(now.Reports))
		}
		return now.Healthy()
	})

	added := time.Now()
	n, err := h.AddNode(h.ctx, number)
	h.must(err)
	first := h.awaitSince(added, waitLimit, "the new node's entry appears", func(s fixture.State) error {
		return s.Fresh(n.Name, added)
	})
	h.awaitHealthy(apiservers.Kube)
	// The kubelet may first start the former node's companion. The operator replaces it because it seems silent.
	var found []cluster.Process
	h.await(waitLimit, "the newcomer has one companion", func() error {
		if found, err = n.Processes(h.ctx, reporterPods[apiservers.Kube], reporterContainer); err != nil || len(found) == 1 {
			return err
		}
		return fmt.Errorf("it has %d", len(found))
	})
	// The API server answers 503 for a moment, and the Service, which is tried next, may have no route yet. The next try
	// is 2 s later.
	h.took("its companion's start to its entry", first.At.Sub(found[0].Started), retryBound)

	h.noLongAlarm(fire)
	h.always(apiservers.Kube, fire, notDegraded)
}

func (h *scenario) nodeNamed(name string) *cluster.Node {
	for _, n := range h.Nodes() {
		if n.Name == name {
			return n
		}
	}
	h.t.Fatalf("no node %s", name)
	return nil
}

// nodeBeside returns a node other than this one and the first one, which has etcd.
func (h *scenario) nodeBeside(name string) *cluster.Node {
	for _, n := range h.Nodes()[1:] {
		if n.Name != name {
			return n
		}
	}
	h.t.Fatalf("no node beside %s", name)
	return nil
}

// awaitReady waits until the Node's condition Ready has a status.
func (h *scenario) awaitReady(n *cluster.Node, status corev1.ConditionStatus) {
	h.await(waitLimit, fmt.Sprintf("%s is Ready=%s", n.Name, status), func() error {
		node, err := h.Kube.CoreV1().Nodes().Get(h.ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != status {
				err = fmt.Errorf("it is %s", c.Status)
			}
		}
		return err
	})
}

// remoteKey returns the key ID of a node's plugin.
func (h *scenario) remoteKey(n *cluster.Node) string {
	state, err := h.pluginOn(n).State()
	h.must(err)
	return state.KeyID
}

func (h *scenario) statusCalls(p kmsplugin.Client) kmsplugin.CallStats {
	state, err := p.State()
	h.must(err)
	return state.Calls[kmsplugin.CallStatus]
}

// awaitSince waits for a state of kubeapiservers since a time.
func (h *scenario) awaitSince(since time.Time, limit time.Duration, what string,
	check func(fixture.State) error) fixture.State {
	return h.awaitOf(apiservers.Kube, since, limit, what, check)
}

// awaitOf is awaitSince for any operator resource.
func (h *scenario) awaitOf(server apiservers.Server, since time.Time, limit time.Duration, what string,
	check func(fixture.State) error) fixture.State {
	s, err := h.seen.Await(h.ctx, server, since, limit, what, check)
	h.must(err)
	return s
}

// operators returns the operator's pods that are not being deleted.
func (h *scenario) operators() []corev1.Pod {
	return slices.DeleteFunc(h.pods(fixture.Home, "app.kubernetes.io/name="+fixture.OperatorName),
		func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (h *scenario) lease() *coordinationv1.Lease {
	l := read(h, "the operator's lease", func() (*coordinationv1.Lease, error) {
		return h.Kube.CoordinationV1().Leases(fixture.Home).Get(h.ctx, fixture.OperatorName, metav1.GetOptions{})
	})
	if l.Spec.HolderIdentity == nil || l.Spec.LeaseTransitions == nil || l.Spec.RenewTime == nil {
		h.t.Fatalf("the lease has no times: %+v", l.Spec)
	}
	return l
}

// leader returns the operator's pod that holds the lease, once it is on one of these nodes; none given: on any.
func (h *scenario) leader(on ...*cluster.Node) (leader corev1.Pod) {
	h.await(waitLimit, "the operator leads", func() error {
		holder := *h.lease().Spec.HolderIdentity
		for _, p := range h.operators() {
			if p.Name == holder && (len(on) == 0 || slices.Contains(on, h.nodeNamed(p.Spec.NodeName))) {
				leader = p
				return nil
			}
		}
		return fmt.Errorf("the lease is held by %s", holder)
	})
	return leader
}
