package rollup

import (
	"slices"
	"time"
)

// Input is all that a verdict stands on.
type Input struct {
	Now     time.Time
	Reports []Report
	// Nodes are those that should report: each has a pod of the target that is
	// placed and not about to go.
	Nodes []Node
	// WriteKey is the keyID of the plugin that encrypts what is written; empty while
	// it is not known, and then taken from the reports. NoWriteKey says that there is
	// none: KMS is being turned off.
	WriteKey   string
	NoWriteKey bool
	// Previous are the conditions as they stand, by type.
	Previous map[string]Condition
	// Optional are the conditions wanted beyond the usual ones: Available,
	// Progressing.
	Optional []string
}

// Node is one that should report.
type Node struct {
	Name string
	// Ready is that of the Node itself. While it is not, the node controller's own
	// condition tells why nothing is heard of it.
	Ready bool
	// PodSince is when the API server's pod on it was made: what was reported
	// before is of another pod, and so of other plugins.
	PodSince time.Time
	// QuietUntil excuses silence: the API server on it is being replaced.
	QuietUntil time.Time
	// Leaving says that its API server has ended in order, so that its plugins may
	// end, too.
	Leaving bool
	// Keys are the keyIDs of its plugins; nil while they are not known.
	Keys []string
	// Faults are containers that cannot start.
	Faults []Fault
	// Look has, by keyID, the command that shows a plugin's log, and under
	// the empty keyID the reporter's.
	Look map[string]string
}

// Fault is a container that cannot start, and keeps its node from serving or from
// reporting.
type Fault struct {
	Pod, Container string // namespace/name, and the container in it
	// Reporter says that it is the reporter's, of which nothing needs telling while its
	// node is heard of.
	Reporter bool
	Why      string
	Look     string // the command that shows more
	// Until is when to judge again though nothing has changed; zero: not before.
	Until time.Time
}

// expects says whether a node should report on a key.
func (n *Node) expects(keyID string) bool {
	return n.Keys == nil || slices.Contains(n.Keys, keyID)
}

// excused says whether a node's silence tells nothing about its reporter.
func (n *Node) excused(now time.Time) bool {
	return !n.Ready || n.Leaving || now.Before(n.QuietUntil)
}
