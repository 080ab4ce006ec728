//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const interval = fixture.Interval

// scenario is a test, on a cluster.
type scenario struct {
	*fixture.Cluster
	t       *testing.T
	ctx     context.Context
	version *fixture.Version
	seen    *fixture.Observer
}

// shared is the single-node cluster that most tests use.
var shared struct {
	cluster *fixture.Cluster
	version *fixture.Version
	on      bool // KMS was turned on
	// writeKey is the key that kube-apiserver writes with; empty: 1.
	writeKey string
	broken   string
}

// newScenario returns the shared cluster with kms-health on it, and with KMS on unless
// a test is to do that.
func newScenario(t *testing.T, on bool) *scenario {
	t.Helper()
	if shared.broken != "" {
		t.Skipf("%s left the cluster in an unknown state", shared.broken)
	}
	first := shared.cluster == nil
	if first {
		s, err := newCluster(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		shared.cluster = s
		if shared.version, err = s.Build(t.Context(), "this", root); err != nil {
			t.Fatal(err)
		}
	}
	h := newScenarioOn(t, shared.cluster, shared.version)
	if first {
		h.must(h.Install(h.ctx, h.version, fixture.Configuration))
		h.must(h.AwaitOperator(h.ctx))
	}
	if on && !shared.on {
		h.turnOn()
		shared.on = true
	}
	return h
}

// newScenarioOn returns a test on a cluster, of which it keeps the logs when it fails.
func newScenarioOn(t *testing.T, s *fixture.Cluster, v *fixture.Version) *scenario {
	t.Helper()
	h := &scenario{Cluster: s, t: t, ctx: t.Context(), version: v}
	var err error
	if h.seen, err = s.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.seen.Close(); err != nil && !errors.Is(err, context.Canceled) && !t.Failed() {
			t.Errorf("the observer missed something: %v", err)
		}
		if t.Failed() {
			keepLogs(t, s)
		}
	})
	return h
}

func keepLogs(t *testing.T, s *fixture.Cluster) {
	dir := filepath.Join(root, *logsDir, strings.ReplaceAll(t.Name(), "/", "_"))
	if err := errors.Join(os.RemoveAll(dir), s.KeepLogs(dir)); err != nil {
		t.Logf("keep the logs: %v", err)
	}
	t.Logf("the logs of all nodes are in %s", dir)
}

func (h *scenario) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *scenario) node() *cluster.Node { return h.Nodes()[0] }

// pluginOn is the plugin of a node's kube-apiserver.
func (h *scenario) pluginOn(n *cluster.Node) kmsplugin.Client {
	return kmsplugin.Client(n.Path(cluster.PluginControl(h.writeKey())))
}

func (h *scenario) do(p kmsplugin.Client, name string, args ...string) {
	h.t.Helper()
	_, err := p.Do(name, args...)
	h.must(err)
}

func (h *scenario) turnOn() {
	h.t.Helper()
	h.must(h.TurnOn(h.ctx))
}

// now is the state of one resource, from etcd.
func (h *scenario) now(server apiservers.Server) fixture.State {
	h.t.Helper()
	state, err := h.Now(h.ctx, server)
	h.must(err)
	return state
}

func (h *scenario) await(limit time.Duration, what string, check func() error) {
	h.t.Helper()
	h.must(wait.For(h.ctx, limit, what, func(context.Context) error { return check() }))
}

// awaitHealthy waits until these API servers are healthy.
func (h *scenario) awaitHealthy(servers ...apiservers.Server) {
	h.t.Helper()
	h.must(h.AwaitHealthy(h.ctx, servers...))
}

// writeKey is the key id that kube-apiserver writes with.
func (h *scenario) writeKey() string {
	if shared.writeKey == "" {
		return "1"
	}
	return shared.writeKey
}

// pluginOf is the plugin of an API server.
func (h *scenario) pluginOf(server apiservers.Server) kmsplugin.Client {
	h.t.Helper()
	if server == apiservers.Kube {
		return h.pluginOn(h.node())
	}
	p, err := h.PluginOf(server, h.node())
	h.must(err)
	return p
}

// sub is the scenario of a subtest.
func (h *scenario) sub(t *testing.T) *scenario {
	c := *h
	c.t, c.ctx = t, t.Context()
	return &c
}

// process is the one of a container, of a pod whose name begins with a prefix.
func (h *scenario) process(podPrefix, container string) cluster.Process {
	h.t.Helper()
	found, err := h.node().Processes(h.ctx, podPrefix, container)
	h.must(err)
	if len(found) != 1 {
		h.t.Fatalf("%d processes in containers %s of pods %s…, want one: %v", len(found), container, podPrefix, found)
	}
	return found[0]
}

// kill ends the process of a container, and waits for the next: when that began, and
// the kubelet's share.
func (h *scenario) kill(podPrefix, container string) (next cluster.Process, kubelet time.Duration) {
	h.t.Helper()
	before := h.process(podPrefix, container)
	killed := time.Now()
	h.must(h.node().SignalContainer(h.ctx, podPrefix, container, syscall.SIGKILL))
	h.await(3*time.Minute, "the kubelet starts "+container+" again", func() error {
		found, err := h.node().Processes(h.ctx, podPrefix, container)
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].PID == before.PID {
			return fmt.Errorf("processes: %v", found)
		}
		next = found[0]
		return nil
	})
	return next, next.Started.Sub(killed)
}

// reporters are the processes of all reporters on the node, by container's pod prefix.
var reporterPods = map[apiservers.Server]string{
	apiservers.Kube:      "kms-health-kube-apiserver-",
	apiservers.OpenShift: "apiserver-",
	apiservers.OAuth:     "kms-health-reporter-oauth-apiserver-",
}

const (
	reporterContainer = "kms-health"
	operatorContainer = "operator"
	operatorPods      = fixture.OperatorName
)

// allPIDs are the process ids of the containers that matter, of every pod on the node.
func (h *scenario) allPIDs() map[string][]int {
	h.t.Helper()
	all := map[string][]int{}
	for _, c := range []struct{ pod, container string }{
		{"kube-apiserver-", "kube-apiserver"},
		{reporterPods[apiservers.Kube], reporterContainer},
		{reporterPods[apiservers.OpenShift], reporterContainer},
		{reporterPods[apiservers.OAuth], reporterContainer},
		{"apiserver-", "openshift-apiserver"},
		{"apiserver-", "oauth-apiserver"},
		{operatorPods, operatorContainer},
	} {
		found, err := h.node().Processes(h.ctx, c.pod, c.container)
		h.must(err)
		var pids []int
		for _, p := range found {
			pids = append(pids, p.PID)
		}
		slices.Sort(pids)
		all[c.pod+"/"+c.container] = pids
	}
	return all
}

// untouched requires every process to be one of before.
func (h *scenario) untouched(before map[string][]int) {
	h.t.Helper()
	for name, pids := range h.allPIDs() {
		if !slices.Equal(pids, before[name]) {
			h.t.Errorf("%s: processes %v, before: %v", name, pids, before[name])
		}
	}
}

// startResolution is that of a process's start time, and of the clock beside it.
const startResolution = 20 * time.Millisecond

// steady requires all states of some API servers since a time to be healthy, and no tick of
// their reporters to be missed.
func (h *scenario) steady(scenario, what string, since time.Time, good func(fixture.State) error, servers ...apiservers.Server) {
	h.t.Helper()
	end := time.Now() // reading the log takes its time
	events, err := h.node().Audit(since)
	h.must(err)
	for _, server := range servers {
		for _, s := range h.seen.States(server, since) {
			if err := good(s); err != nil {
				h.t.Errorf("%s: %s, at %s: %v", what, server.Name, s.At.Format(time.TimeOnly), err)
				break
			}
		}
		// Not by what etcd saw: a report in the same second as the one before it, with
		// nothing else that is new, changes nothing there.
		status := "/apis/operator.openshift.io/v1/" + server.Resource + "/cluster/status?fieldManager=kms-health-reporter-"
		last, longest := since, time.Duration(0)
		for _, e := range events {
			if e.Verb == "patch" && strings.HasPrefix(e.RequestURI, status) && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK {
				at := e.RequestReceivedTimestamp.Time
				last, longest = at, max(longest, at.Sub(last))
			}
		}
		longest = max(longest, end.Sub(last))
		times.took(scenario, what+": "+server.Name+", longest time between two reports", longest, noTime, "2 intervals")
		if longest < 2*interval*9/10 { // their jitter less
			continue
		}
		h.t.Errorf("%s: %s: no report for %s: a tick was missed", what, server.Name, longest)
		lines, err := h.logLines("", " reports")
		h.must(err)
		for _, line := range lines {
			if !line.at.Before(since) {
				h.t.Log(line.at.Format(time.StampMilli), line.uid, line.text)
			}
		}
	}
}
