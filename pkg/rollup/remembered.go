package rollup

import (
	"maps"
	"time"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// FirstReport is how long a plugin may be expected without a report before that is a
// problem: images are pulled, and credentials made.
const FirstReport = 5 * time.Minute

// Expectations records since when each plugin of a target's nodes has been expected, by
// node and keyID.
type Expectations map[string]map[string]time.Time

// Observe updates the record, and sets ExpectedSince of the nodes. A node that is away is
// forgotten.
func (x Expectations) Observe(nodes []Node, now time.Time) {
	before := maps.Clone(x)
	clear(x)
	for i := range nodes {
		n := &nodes[i]
		n.ExpectedSince = make(map[string]time.Time, len(n.Keys))
		keys := n.Keys
		if keys == nil {
			keys = []string{""}
		}
		for _, key := range keys {
			n.ExpectedSince[key] = now
			if since, known := before[n.Name][key]; known {
				n.ExpectedSince[key] = since
			}
		}
		x[n.Name] = n.ExpectedSince
	}
}

// replacePeriod bounds for how long the replacement of an API server excuses its
// node, from its beginning: an installer's start, an API server's graceful shutdown (up to
// 135 seconds on OpenShift) and its successor's start.
const replacePeriod = 5 * time.Minute

// Replacements records since when the API servers of a target's nodes are being
// replaced. A kubelet does not update the status of a pod while it terminates, so the pod
// alone does not show that its plugins have stopped before its API server.
type Replacements map[string]time.Time // by node

// Observe updates the record from the status of a static pod operator, and excuses the nodes that are
// being replaced.
func (r Replacements) Observe(nodes []Node, statuses []operatorcr.NodeStatus, now time.Time) {
	for _, s := range statuses {
		began, known := r[s.Name]
		switch {
		case !s.Replacing:
			delete(r, s.Name)
			continue
		case !known:
			began, r[s.Name] = now, now
		}
		for i := range nodes {
			if n := &nodes[i]; n.Name == s.Name {
				n.QuietUntil = latest(n.QuietUntil, began.Add(replacePeriod))
			}
		}
	}
}
