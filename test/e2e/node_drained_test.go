//go:build e2e

package e2e

import (
	"context"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// inertia is for how long a StatusSyncer waits before a condition counts.
const inertia = 2 * time.Minute

// A node is drained, as for its upgrade, and tainted. Its kube-apiserver is a static pod and
// serves all the while, so its reporter must be back at once, and is not an alarm.
func testNodeDrained(h *scenario) {
	n := h.nodeBeside(h.leader().Spec.NodeName)
	kubectl := func(args ...string) {
		h.t.Helper()
		_, err := h.Kubectl(h.ctx, "", args...)
		h.must(err)
	}
	back := func(what string, since time.Time) {
		h.t.Helper()
		h.await(time.Minute, "all nodes report after the "+what, func() error { return h.allNodesFresh(since) })
		times.took("node drained", what+", to reports from all nodes", time.Since(since), noTime, "1 min")
	}
	start := time.Now()
	h.t.Cleanup(func() {
		_, _ = h.Kubectl(context.WithoutCancel(h.t.Context()), "", "uncordon", n.Name)
		_, _ = h.Kubectl(context.WithoutCancel(h.t.Context()), "", "taint", "node", n.Name, "e2e-")
	})
	// Without --force: every pod of ours has a controller.
	kubectl("drain", n.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
	back("drain", time.Now())
	kubectl("uncordon", n.Name)
	kubectl("taint", "node", n.Name, "e2e=tainted:NoExecute")
	back("taint", time.Now())
	kubectl("taint", "node", n.Name, "e2e-")
	back("end of the taint", time.Now())
	h.noLongAlarm("node drained", start)
}

// noLongAlarm requires that no roll-up was an alarm for as long as it counts for
// `oc get co`, since a time.
func (h *scenario) noLongAlarm(event string, since time.Time) {
	h.t.Helper()
	for _, server := range apiservers.All {
		var began time.Time
		longest := time.Duration(0)
		for _, s := range append(h.seen.States(server, since), h.now(server)) {
			if c := s.Conditions[rollup.Degraded]; c.Status == "False" || c.Status == "" {
				began = time.Time{}
				continue
			}
			if began.IsZero() {
				began = s.At
			}
			longest = max(longest, s.At.Sub(began))
		}
		times.took(event, server.Name+": longest time of KMSPluginsDegraded True or Unknown", longest, noTime, inertia.String())
		atMost(h, "an alarm of "+server.Name, longest, inertia)
	}
}
