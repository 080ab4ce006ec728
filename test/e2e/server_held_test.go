//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// heldFor is how long one of three API servers is kept down.
func heldFor() time.Duration {
	if testing.Short() {
		return time.Minute
	}
	return 10 * time.Minute
}

// missedAtMost bounds the time between two reports while a server that was in use ends.
const missedAtMost = 5 * time.Second

// One of three kube-apiservers is kept down. The reporters of its node continue through
// another server: the kubernetes service, and after it the internal load balancer.
func testAPIServerOfOneNodeHeld(h *scenario) {
	h.must(h.Aggregate(h.ctx))
	h.must(h.Configure(h.ctx, fixture.Configuration))
	h.await(3*time.Minute, "all three targets are healthy on three nodes", func() error { return h.allNodesFresh(time.Now().Add(-5 * interval)) })
	for _, server := range []struct{ name, uri string }{
		{"kubernetes service", ""},
		{"internal load balancer", cluster.InternalServer},
	} {
		h.useInternalServer(server.uri)
		h.holdOne(server.name, heldFor()/2)
	}
}

// useInternalServer publishes the load balancer's URL as OpenShift does, or none, and waits
// until the reporters have it.
func (h *scenario) useInternalServer(uri string) {
	h.t.Helper()
	_, err := h.Kubectl(h.ctx, "", "patch", "infrastructures.config.openshift.io", "cluster", "--subresource=status", "--type=merge",
		"-p", `{"status": {"apiServerInternalURI": "`+uri+`"}}`)
	h.must(err)
	want := uri
	if want == "" {
		want = "https://172.30.0.1" // the kubernetes service, by the operator's environment
	}
	h.await(time.Minute, "the reporters' file has "+want, func() error {
		pods, err := h.Kubectl(h.ctx, "", "-n", fixture.Home, "get", "pods", "-l", "kmshealth.openshift.io/api-server",
			`--output=jsonpath={range .items[*]}{.metadata.annotations.kmshealth\.openshift\.io/config}{"\x00"}{end}`)
		if err != nil {
			return err
		}
		for _, file := range strings.Split(strings.TrimSuffix(pods, "\x00"), "\x00") {
			if !strings.Contains(file, "https://localhost:6443") || !strings.Contains(file, want) {
				return errors.New(file)
			}
		}
		return nil
	})
}

func (h *scenario) holdOne(name string, length time.Duration) {
	h.t.Helper()
	n := h.nodeBeside(h.leader().Spec.NodeName)
	h.await(time.Minute, "everything is healthy", func() error { return h.allNodesFresh(time.Now().Add(-5 * interval)) })
	h.must(n.HoldAPIServer())
	released := false
	defer func() {
		if !released {
			_ = n.ReleaseAPIServer()
		}
	}()
	down := time.Now()
	h.must(n.SignalContainer(h.ctx, "kube-apiserver-", "kube-apiserver", syscall.SIGKILL))
	select {
	case <-time.After(length):
	case <-h.ctx.Done():
		h.t.Fatal(h.ctx.Err())
	}
	end := time.Now()
	h.must(h.allNodesFresh(end.Add(-5 * interval)))
	h.noUnknown(down, end)
	for _, server := range apiservers.All {
		writes := h.writesOf(n, server, down.Add(-5*interval), end)
		last, longest := down.Add(-interval), time.Duration(0)
		for _, at := range append(writes, end) {
			if gap := at.Sub(last); gap > longest {
				longest = gap
			}
			last = at
		}
		times.took("API server of one node down", fmt.Sprintf("%s: %s, %d reports in %s, longest time between two", name, server.Name, len(writes), length), longest, noTime, missedAtMost.String())
		atMost(h, name+": "+server.Name+": the longest time between two reports", longest, missedAtMost)
	}

	h.must(n.ReleaseAPIServer())
	released = true
	h.must(n.AwaitAPIServer(h.ctx, "/readyz", 2*time.Minute))
	ready := time.Now()
	h.await(2*time.Minute, "the companion writes through its own API server again", func() error {
		events, err := n.Audit(ready)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(e auditv1.Event) bool { return isReport(e, n, apiservers.Kube) }) {
			return errors.New("it does not")
		}
		return nil
	})
	times.took("API server of one node down", name+": Ready again, to a report through localhost", time.Since(ready), noTime, "")
	h.await(time.Minute, "everything is healthy", func() error { return h.allNodesFresh(time.Now().Add(-5 * interval)) })
	// A starting kube-apiserver takes the host's cores from the others, so that reports of
	// every second are late.
	h.noLongAlarm("API server of one of three nodes down", down)
	for _, server := range apiservers.All {
		h.neverDegraded(server, "API server of "+n.Name+" held and released", down)
	}
}

// writesOf are the times at which the API servers of the other nodes took reports of a
// node, by their audit logs.
func (h *scenario) writesOf(n *cluster.Node, server apiservers.Server, from, to time.Time) (at []time.Time) {
	h.t.Helper()
	for _, other := range h.Nodes() {
		events, err := other.Audit(from)
		h.must(err)
		for _, e := range events {
			if isReport(e, n, server) && e.RequestReceivedTimestamp.Time.Before(to) {
				at = append(at, e.RequestReceivedTimestamp.Time)
			}
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

func isReport(e auditv1.Event, n *cluster.Node, server apiservers.Server) bool {
	return e.Verb == "patch" && strings.HasPrefix(e.RequestURI, "/apis/operator.openshift.io/v1/"+server.Resource+"/cluster/status?") &&
		strings.Contains(e.RequestURI, "fieldManager="+contract.ConditionManager(n.Name)+"&") &&
		e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK
}

// allNodesFresh has nothing against healthy API servers that were checked on all nodes after
// a time.
func (h *scenario) allNodesFresh(since time.Time) error {
	var errs []error
	for _, server := range apiservers.All {
		s, err := h.Now(context.WithoutCancel(h.ctx), server)
		if err != nil {
			return err
		}
		errs = append(errs, s.Healthy())
		for _, n := range h.Nodes() {
			errs = append(errs, s.Fresh(n.Name, since))
		}
	}
	return errors.Join(errs...)
}

// noUnknown requires that no roll-up was Unknown and that no plugin was reported as unhealthy
// between two times.
func (h *scenario) noUnknown(since, until time.Time) {
	h.t.Helper()
	for _, server := range apiservers.All {
		for _, s := range h.seen.States(server, since) {
			if s.At.After(until) {
				break
			}
			var errs []error
			for kind, c := range s.Conditions {
				if _, report := contract.NodeOf(kind); !report && strings.HasPrefix(kind, "KMS") && c.Status == operatorcr.Unknown {
					errs = append(errs, fmt.Errorf("%s is Unknown (%s): %s", kind, c.Reason, c.Message))
				}
			}
			if err := errors.Join(append(errs, s.Is(contract.PluginsDegraded, "False", contract.AsExpected))...); err != nil {
				h.t.Errorf("%s: %s after the API server ended: %v", server.Name, s.At.Sub(since).Round(time.Millisecond), err)
				break
			}
		}
	}
}

// neverDegraded requires that no plugin was reported as unhealthy since a time.
func (h *scenario) neverDegraded(server apiservers.Server, name string, since time.Time) {
	h.t.Helper()
	for _, s := range h.seen.States(server, since) {
		if c := s.Conditions[contract.PluginsDegraded]; c.Status == operatorcr.True {
			h.t.Errorf("%s: %s after it began, KMSPluginsDegraded of %s is True: %s", name, s.At.Sub(since).Round(time.Millisecond), server.Name, c.Message)
			return
		}
	}
}
