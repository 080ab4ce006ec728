//go:build e2e

package e2e

import (
	"time"
)

// A node is drained, as for an upgrade, and tainted. Its kube-apiserver is a static pod and continues to serve, so its
// reporter must return at once, without an alarm.
func testNodeDrained(h *scenario) {
	n := h.nodeBeside(h.leader().Spec.NodeName)
	back := func(what string, since time.Time) {
		h.await(waitLimit, "all nodes report after the "+what, func() error { return h.allFresh(since) })
		h.took(what+", to reports from all nodes", time.Since(since), time.Minute)
	}
	start := time.Now()
	// --force is not needed: every pod of this project has a controller.
	h.kubectl("drain", n.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
	back("drain", time.Now())
	h.kubectl("uncordon", n.Name)
	h.kubectl("taint", "node", n.Name, "e2e=tainted:NoExecute")
	back("taint", time.Now())
	h.kubectl("taint", "node", n.Name, "e2e-")
	back("end of the taint", time.Now())
	h.noLongAlarm(start)
}
