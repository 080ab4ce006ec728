//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// A new interval, by the live path, while the one workload that could be rolled is
// paused: no pod is replaced.
func testIntervalChange(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	before := h.allPIDs()
	_, err := h.Kubectl(h.ctx, "", "-n", apiservers.OpenShift.Namespace, "rollout", "pause", "deployment/apiserver")
	h.must(err)
	t.Cleanup(func() {
		_, _ = h.Kubectl(context.WithoutCancel(t.Context()), "", "-n", apiservers.OpenShift.Namespace, "rollout", "resume", "deployment/apiserver")
	})
	change := func(interval string) {
		t.Helper()
		start := time.Now()
		h.must(h.Configure(h.ctx, strings.Replace(fixture.Configuration, "interval: 1s", "interval: "+interval, 1)))
		for _, server := range apiservers.All {
			var reported logLine
			h.await(3*time.Minute, server.Name+": interval "+interval+" is active", func() error {
				reported, err = h.lastLogged(reporterLogs(server), `"Configuration active"`, `interval="`+interval+`"`)
				if err == nil && reported.at.Before(start) {
					err = errors.New("not again")
				}
				return err
			})
			swapped := h.swapped(reported)
			// Before that the kubelet brought the operator its own file, and the operator
			// wrote the reporter's.
			operator, err := h.lastLogged(operatorLogs, `"Configured"`)
			h.must(err)
			operators := h.swapped(operator)
			written, err := h.lastLogged(operatorLogs, `"Changed"`, `apiServer="`+server.Name+`"`, `reason="Applied"`)
			h.must(err)
			times.took("live interval", server.Name+": the operator's new file to the reporter's", written.at.Sub(start), operators.Sub(start), "")
			ours := reported.at.Sub(swapped)
			times.took("live interval", server.Name+": the reporter's new file to active", reported.at.Sub(written.at), swapped.Sub(written.at), "250ms")
			if ours > 250*time.Millisecond || ours < 0 {
				t.Errorf("%s: interval %s came into force %s after the kubelet's swap, must be within 250ms", server.Name, interval, ours)
			}
		}
	}
	change("2s")
	change("1s")
	h.untouched(before)
	h.awaitHealthy(apiservers.All...)
}

// swapped is when the kubelet last swapped a volume of the pod that reported something,
// before it did.
func (h *scenario) swapped(reported logLine) time.Time {
	h.t.Helper()
	links, err := filepath.Glob(h.node().Path("/var/lib/kubelet/pods/" + reported.uid + "/volumes/kubernetes.io~*/*/..data"))
	h.must(err)
	var last time.Time
	for _, link := range links {
		info, err := os.Lstat(link)
		h.must(err)
		// A rename is a change of the link: its ctime.
		stat := info.Sys().(*syscall.Stat_t)
		if at := time.Unix(stat.Ctim.Unix()); at.After(last) && at.Before(reported.at) {
			last = at
		}
	}
	if last.IsZero() {
		h.t.Fatalf("no volume of pod %s was swapped before it reported: %s", reported.uid, reported.text)
	}
	return last
}
