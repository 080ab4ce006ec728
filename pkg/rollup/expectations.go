package rollup

import "time"

// FirstReport is how long a plugin may be expected without a report before that is a
// problem: images are pulled, and credentials made.
const FirstReport = 5 * time.Minute

// Expectations records since when each plugin of a target's nodes has been expected, by
// node and keyID.
type Expectations map[string]map[string]time.Time

// Observe updates the record, and sets ExpectedSince of the nodes. A node that is away is
// forgotten.
func (x Expectations) Observe(nodes []Node, now time.Time) {
	before := make(Expectations, len(x))
	for name, keys := range x {
		before[name] = keys
		delete(x, name)
	}
	for i := range nodes {
		n := &nodes[i]
		n.ExpectedSince = make(map[string]time.Time, len(n.Keys))
		keys := n.Keys
		if keys == nil {
			keys = []string{""}
		}
		for _, key := range keys {
			since, known := before[n.Name][key]
			if !known {
				since = now
			}
			n.ExpectedSince[key] = since
		}
		x[n.Name] = n.ExpectedSince
	}
}
