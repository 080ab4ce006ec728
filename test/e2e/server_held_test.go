//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// One of three kube-apiservers is kept down. Its node's reporters write through another server: first by the kubernetes
// service, later by the internal load balancer.
func testAPIServerOfOneNodeHeld(h *scenario) {
	h.must(h.Aggregate(h.ctx))
	h.must(h.Configure(h.ctx, fixture.Configuration))
	h.await(waitLimit, "all three targets are healthy on three nodes",
		func() error { return h.allFresh(time.Now().Add(-5 * interval)) })
	for _, server := range []struct{ name, uri string }{
		{"kubernetes service", ""},
		{"internal load balancer", cluster.InternalServer},
	} {
		h.useInternalServer(server.uri)
		h.holdOne(server.name, inShort(30*time.Second, 5*time.Minute))
	}
}

// useInternalServer publishes the load balancer's URL as OpenShift does, or no URL, and waits until the reporters'
// files have it.
func (h *scenario) useInternalServer(uri string) {
	h.kubectl("patch", "infrastructures.config.openshift.io", "cluster", "--subresource=status", "--type=merge",
		"-p", `{"status": {"apiServerInternalURI": "`+uri+`"}}`)
	want := uri
	if want == "" {
		want = "https://172.30.0.1" // the kubernetes service, from the operator's environment
	}
	h.await(waitLimit, "the reporters' file has "+want, func() error {
		pods := h.pods(fixture.Home, contract.APIServerLabel)
		if len(pods) == 0 {
			return errors.New("there are no reporters")
		}
		for _, p := range pods {
			file := p.Annotations[contract.ConfigAnnotation]
			if !strings.Contains(file, "https://localhost:6443") || !strings.Contains(file, want) {
				return errors.New(file)
			}
		}
		return nil
	})
}

func (h *scenario) holdOne(name string, length time.Duration) {
	n := h.nodeBeside(h.leader().Spec.NodeName)
	h.await(rollup.SettlePeriod+waitLimit, "everything is healthy, and nothing is settling", func() error {
		return h.allFresh(time.Now().Add(-5*interval), fixture.State.Healthy, known)
	})
	h.must(n.HoldAPIServer())
	down := time.Now()
	h.must(n.SignalContainer(h.ctx, "kube-apiserver-", "kube-apiserver", syscall.SIGKILL))
	time.Sleep(length)
	end := time.Now()
	h.must(h.allFresh(end.Add(-5 * interval)))
	for _, server := range apiservers.All {
		// At first connections through the service or the load balancer may lead to the server that is down. With an
		// interval of 1 s, a report is stale before retryBound.
		h.always(server, down.Add(retryBound), known)
		writes := h.writesOf(n, server, down.Add(-5*interval), end)
		h.took(fmt.Sprintf("%s: %s, %d reports in %s, longest time between two", name, server.Name, len(writes), length),
			longestGap(down.Add(-interval), end, writes), retryBound)
	}

	h.must(n.ReleaseAPIServer())
	h.must(n.AwaitAPIServer(h.ctx, "/readyz"))
	ready := time.Now()
	h.await(waitLimit, "the companion writes through its own API server again", func() error {
		events, err := n.Audit(ready)
		if !slices.ContainsFunc(events, func(e auditv1.Event) bool { return isReport(e, n, apiservers.Kube) }) {
			return errors.Join(err, errors.New("it does not"))
		}
		return nil
	})
	h.await(waitLimit, "everything is healthy", func() error { return h.allFresh(time.Now().Add(-5 * interval)) })
	// A starting kube-apiserver uses all cores of the host, so reports with an interval of 1 s are late.
	h.noLongAlarm(down)
	for _, server := range apiservers.All {
		h.always(server, down, notDegraded)
	}
}

// writesOf returns when the API servers accepted reports of a node, by all audit logs.
func (h *scenario) writesOf(n *cluster.Node, server apiservers.Server, from, to time.Time) (at []time.Time) {
	for _, other := range h.Nodes() {
		events, err := other.Audit(from)
		h.must(err)
		for _, e := range events {
			if isReport(e, n, server) && e.RequestReceivedTimestamp.Time.Before(to) {
				at = append(at, e.RequestReceivedTimestamp.Time)
			}
		}
	}
	return at
}

// allFresh returns an error unless the states of all API servers pass checks, by reports from all nodes after a time;
// none given: all must be healthy.
func (h *scenario) allFresh(since time.Time, checks ...func(fixture.State) error) error {
	if len(checks) == 0 {
		checks = append(checks, fixture.State.Healthy)
	}
	var errs []error
	for _, server := range apiservers.All {
		s, err := h.Now(h.ctx, server)
		if err != nil {
			return err
		}
		for _, n := range h.Nodes() {
			errs = append(errs, s.Fresh(n.Name, since))
		}
		for _, check := range checks {
			errs = append(errs, check(s))
		}
	}
	return errors.Join(errs...)
}

// known returns an error if a condition is Unknown, or a plugin unhealthy.
func known(s fixture.State) error {
	errs := []error{asExpected(s)}
	for kind, c := range s.Conditions {
		if _, report := contract.NodeOf(kind); !report && strings.HasPrefix(kind, "KMS") && c.Status == operatorstatus.Unknown {
			errs = append(errs, fmt.Errorf("%s is Unknown (%s): %s", kind, c.Reason, c.Message))
		}
	}
	return errors.Join(errs...)
}
