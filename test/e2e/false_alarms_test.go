//go:build e2e

package e2e

import (
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// inertia is for how long a StatusSyncer waits before a condition counts.
const inertia = 2 * time.Minute

// noLongAlarm requires that since a time no KMSPluginsDegraded was True or Unknown for as
// long as it takes to count for `oc get co`. Every plugin was healthy all the while.
func (h *scenario) noLongAlarm(event string, since time.Time) {
	h.t.Helper()
	for _, server := range apiservers.All {
		var began time.Time
		longest := time.Duration(0)
		for _, s := range append(h.seen.States(server, since), h.now(server)) {
			if !began.IsZero() {
				longest = max(longest, s.At.Sub(began))
			}
			if c := s.Conditions[contract.PluginsDegraded]; c.Status == "False" || c.Status == "" {
				began = time.Time{}
			} else if began.IsZero() {
				began = s.At
			}
		}
		times.took("false alarms", event+", "+server.Name+": longest KMSPluginsDegraded True or Unknown", longest, noTime, inertia.String())
		atMost(h, "an alarm of "+server.Name, longest, inertia)
	}
}
