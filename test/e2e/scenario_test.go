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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const interval = fixture.Interval

// scenario is a test on a cluster.
type scenario struct {
	*fixture.Cluster
	t       *testing.T
	ctx     context.Context
	version *fixture.Version
	seen    *fixture.Observer
	state   *state
}

// state is the cluster's state, which parts share.
type state struct {
	on       bool   // KMS was turned on
	writeKey string // the key that kube-apiserver writes with
}

// sub returns the scenario of a subtest. If the subtest fails, all nodes' logs are kept.
func (h *scenario) sub(t *testing.T) *scenario {
	c := *h
	c.t, c.ctx = t, t.Context()
	t.Cleanup(func() {
		if t.Failed() {
			dir := filepath.Join(logsDir, strings.ReplaceAll(t.Name(), "/", "_"))
			t.Logf("the logs of all nodes are in %s: %v", dir, errors.Join(os.RemoveAll(dir), h.KeepLogs(dir)))
		}
	})
	return &c
}

func (h *scenario) must(err error) {
	h.t.Helper()
	must.Succeed(h.t, err)
}

func (h *scenario) node() *cluster.Node { return h.Nodes()[0] }

// pluginOn returns the plugin of a node's kube-apiserver.
func (h *scenario) pluginOn(n *cluster.Node) kmsplugin.Client {
	return kmsplugin.Client(n.Path(cluster.PluginControl(h.state.writeKey)))
}

func (h *scenario) do(p kmsplugin.Client, name string, args ...string) {
	_, err := p.Do(name, args...)
	h.must(err)
}

// now returns the state of an operator resource, from etcd.
func (h *scenario) now(server apiservers.Server) fixture.State {
	return read(h, "what etcd has of "+server.Name, func() (fixture.State, error) { return h.Now(h.ctx, server) })
}

// read calls once until it succeeds, because a busy server may not answer in time.
func read[T any](h *scenario, what string, once func() (T, error)) (got T) {
	h.await(waitLimit, what, func() (err error) {
		got, err = once()
		return err
	})
	return got
}

func (h *scenario) await(limit time.Duration, what string, check func() error) {
	h.t.Helper()
	h.must(wait.For(h.ctx, limit, what, func(context.Context) error { return check() }))
}

func (h *scenario) awaitHealthy(servers ...apiservers.Server) {
	h.must(h.AwaitHealthy(h.ctx, servers...))
}

// pluginOf returns the plugin of an API server on the first node.
func (h *scenario) pluginOf(server apiservers.Server) kmsplugin.Client {
	if server == apiservers.Kube {
		return h.pluginOn(h.node())
	}
	p, err := h.PluginOf(server, h.node())
	h.must(err)
	return p
}

// pods returns the pods in a namespace that a selector selects.
func (h *scenario) pods(namespace, selector string) []corev1.Pod {
	return read(h, "the pods of "+namespace, func() (*corev1.PodList, error) {
		return h.Kube.CoreV1().Pods(namespace).List(h.ctx, metav1.ListOptions{LabelSelector: selector})
	}).Items
}

// apiServerPod returns the pod of a node's kube-apiserver.
func (h *scenario) apiServerPod(n *cluster.Node) *corev1.Pod {
	return read(h, "kube-apiserver's pod of "+n.Name, func() (*corev1.Pod, error) {
		return h.Kube.CoreV1().Pods(cluster.APIServerNamespace).Get(h.ctx, cluster.APIServerName+"-"+n.Name,
			metav1.GetOptions{})
	})
}

// kubectl runs kubectl as an administrator, and returns its output.
func (h *scenario) kubectl(args ...string) string {
	out, err := h.Kubectl(h.ctx, "", args...)
	h.must(err)
	return out
}

// process returns the one process of a container, in a pod whose name begins with a prefix. It waits while a former
// pod's process ends.
func (h *scenario) process(podPrefix, container string) cluster.Process {
	return h.awaitNext(podPrefix, container, 0)
}

// kill kills the process of a container, and waits for the next one.
func (h *scenario) kill(podPrefix, container string) (next cluster.Process) {
	before := h.process(podPrefix, container)
	h.must(h.node().SignalContainer(h.ctx, podPrefix, container, syscall.SIGKILL))
	return h.awaitNext(podPrefix, container, before.PID)
}

// awaitNext waits until a container has exactly one process, which is not before; 0: any.
func (h *scenario) awaitNext(podPrefix, container string, before int) (next cluster.Process) {
	h.await(waitLimit, "a new process of "+container+" of "+podPrefix, func() error {
		found, err := h.node().Processes(h.ctx, podPrefix, container)
		if err == nil && (len(found) != 1 || found[0].PID == before) {
			err = fmt.Errorf("processes: %v", found)
		}
		if err == nil {
			next = found[0]
		}
		return err
	})
	return next
}

// reporterPods are the beginnings of the names of the pods with an API server's reporter.
var reporterPods = map[apiservers.Server]string{
	apiservers.Kube:      "kms-health-kube-apiserver-",
	apiservers.OpenShift: "apiserver-",
	apiservers.OAuth:     "kms-health-reporter-oauth-apiserver-",
}

const (
	reporterContainer = contract.ReporterContainer
	operatorContainer = "operator"
	operatorPods      = fixture.OperatorName
)

// allPIDs returns the process ids of the relevant containers in all pods of a node.
func (h *scenario) allPIDs(n *cluster.Node) map[string][]int {
	all := map[string][]int{}
	for _, c := range []struct{ pod, container string }{
		{"kube-apiserver-", "kube-apiserver"},
		{"kube-apiserver-", "kms-plugin-1"},
		{reporterPods[apiservers.Kube], reporterContainer},
		{reporterPods[apiservers.OpenShift], reporterContainer},
		{reporterPods[apiservers.OAuth], reporterContainer},
		{"apiserver-", "openshift-apiserver"},
		{"apiserver-", "oauth-apiserver"},
		{operatorPods, operatorContainer},
	} {
		found, err := n.Processes(h.ctx, c.pod, c.container)
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

// untouched requires all processes of a node to be the same as before, except for the processes of some containers.
func (h *scenario) untouched(n *cluster.Node, before map[string][]int, but ...string) {
	if len(before[reporterPods[apiservers.Kube]+"/"+reporterContainer]) == 0 {
		h.t.Error("no reporter ran before")
	}
	for name, pids := range h.allPIDs(n) {
		if !slices.Equal(pids, before[name]) && !slices.Contains(but, name) {
			h.t.Errorf("%s: processes %v, before: %v", name, pids, before[name])
		}
	}
}

// always requires every state of an API server since a time to pass a check.
func (h *scenario) always(server apiservers.Server, since time.Time, check func(fixture.State) error) {
	for _, s := range h.seen.States(server, since) {
		if err := check(s); err != nil {
			h.t.Errorf("%s, %s after it began: %v", server.Name, s.At.Sub(since).Round(time.Millisecond), err)
			return
		}
	}
}

// asExpected returns an error if a plugin is unhealthy or unknown.
func asExpected(s fixture.State) error {
	return s.Is(contract.PluginsDegraded, "False", contract.AsExpected)
}

// notDegraded returns an error if a plugin is unhealthy.
func notDegraded(s fixture.State) error {
	if c := s.Conditions[contract.PluginsDegraded]; c.Status == operatorstatus.True {
		return fmt.Errorf("KMSPluginsDegraded is True: %s", c.Message)
	}
	return nil
}

// inertia is the time for which a StatusSyncer waits before a condition counts.
const inertia = 2 * time.Minute

// noLongAlarm requires that since a time no KMSPluginsDegraded was True or Unknown for longer than inertia, so that `oc
// get co` did not show it. It is for times in which every plugin was healthy.
func (h *scenario) noLongAlarm(since time.Time) {
	h.took("longest KMSPluginsDegraded True or Unknown", h.longest(since, noAlarm), inertia)
}

// noAlarm returns an error if KMSPluginsDegraded is True or Unknown.
func noAlarm(s fixture.State) error {
	c := s.Conditions[contract.PluginsDegraded]
	if c.Status == operatorstatus.False || c.Status == "" {
		return nil
	}
	return fmt.Errorf("%s: KMSPluginsDegraded is %s (%s): %s", s.Server.Name, c.Status, c.Reason, c.Message)
}

// longest returns the longest time for which states of an API server in a row did not pass a check, until after a time.
// It logs the states.
func (h *scenario) longest(since time.Time, check func(fixture.State) error) (longest time.Duration) {
	for _, server := range apiservers.All {
		row, states := time.Duration(0), h.seen.States(server, time.Time{})
		if len(states) == 0 && server == apiservers.Kube { // which every cluster has
			h.t.Errorf("no state of %s was seen", server.Name)
		}
		for i, s := range states {
			end := time.Now()
			if i+1 < len(states) {
				end = states[i+1].At
			}
			err := check(s)
			if err == nil {
				row = 0
				continue
			}
			from := s.At
			if from.Before(since) {
				from = since
			}
			if row += max(0, end.Sub(from)); row > 0 {
				longest = max(longest, row)
				h.t.Logf("for %s: %v", row.Round(time.Millisecond), err)
			}
		}
	}
	return longest
}

// steady requires that since a time all states of some API servers were good, no reporter logged a failed write, and no
// report became stale.
func (h *scenario) steady(since time.Time, good func(fixture.State) error, servers ...apiservers.Server) {
	end := time.Now() // before the log is read, which takes time
	events, err := h.node().Audit(since)
	h.must(err)
	for _, server := range servers {
		h.always(server, since, good)
		// The audit log is used because etcd does not change if two equal reports come within a second.
		var at []time.Time
		for _, e := range events {
			if isReport(e, h.node(), server) {
				at = append(at, e.RequestReceivedTimestamp.Time)
			}
		}
		h.took(server.Name+": longest time between two reports", longestGap(since, end, at), contract.StaleIntervals*interval)
	}
	failures, err := h.logLines("", reporterContainer, `"Failed to write reports`)
	h.must(err)
	for _, line := range failures {
		if line.at.After(since) {
			h.t.Errorf("%s after it began: %s", line.at.Sub(since).Round(time.Millisecond), line.text)
		}
	}
}

// longestGap returns the longest time between from, the times at, and to.
func longestGap(from, to time.Time, at []time.Time) (longest time.Duration) {
	slices.SortFunc(at, time.Time.Compare)
	for _, next := range append(at, to) {
		longest, from = max(longest, next.Sub(from)), next
	}
	return longest
}

// isReport returns whether a request is an accepted report of a node's reporter.
func isReport(e auditv1.Event, n *cluster.Node, server apiservers.Server) bool {
	return e.Verb == "patch" && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK &&
		strings.HasPrefix(e.RequestURI, "/apis/operator.openshift.io/v1/"+server.Resource+"/cluster/status?") &&
		strings.Contains(e.RequestURI, "fieldManager="+contract.ConditionManager(n.Name)+"&")
}
