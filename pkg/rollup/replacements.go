package rollup

import (
	"time"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// replacePeriod bounds for how long the replacement of an API server excuses its
// node, from its beginning: an installer's start, an API server's graceful shutdown (up to
// 135 seconds on OpenShift) and its successor's start.
const replacePeriod = 5 * time.Minute

// Replacements records since when the API servers of a target's nodes are being
// replaced. A kubelet does not update the status of a pod while it terminates, so the pod
// alone does not show that its plugins have stopped before its API server.
type Replacements map[string]time.Time // by node

// QuietUntil updates the record from the status of a static pod operator, and returns
// until when each node that is being replaced is excused.
func (r Replacements) QuietUntil(nodes []operatorcr.NodeStatus, now time.Time) map[string]time.Time {
	until := map[string]time.Time{}
	for _, n := range nodes {
		if !n.Replacing {
			delete(r, n.Name)
			continue
		}
		if _, known := r[n.Name]; !known {
			r[n.Name] = now
		}
		until[n.Name] = r[n.Name].Add(replacePeriod)
	}
	return until
}
