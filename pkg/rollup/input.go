package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Input is all that a verdict stands on.
type Input struct {
	Now     time.Time
	Reports []operatorcr.Report
	// Nodes are those with a pod of the target that is placed and not about to go.
	// They should report if that pod has plugins.
	Nodes []Node
	// WriteKey is the keyID of the plugin that encrypts what is written; empty while
	// it is not known, and then taken from the reports. NoWriteKey means that there is
	// none: KMS is being turned off.
	WriteKey   string
	NoWriteKey bool
	// Previous are the conditions as they stand, by type.
	Previous map[string]operatorcr.Condition
	// Optional are the conditions wanted beyond the usual ones: Available,
	// Progressing.
	Optional []string
}

// Node is one with an API server.
type Node struct {
	Name string
	// Ready is that of the Node itself. While it is not, the node controller's own
	// condition reports why it is silent.
	Ready bool
	// PodSince is when the API server's pod on it was made: what was reported
	// before is of another pod, and so of other plugins.
	PodSince time.Time
	// QuietUntil excuses silence: the API server on it is being replaced.
	QuietUntil time.Time
	// Leaving means that its API server has ended in order, so that its plugins may
	// end, too.
	Leaving bool
	// Keys are the keyIDs of its plugins: none where the API server on it does not use
	// KMS; nil while they are not known. WriteKey is the one that it writes with; empty:
	// it writes without KMS.
	Keys     []string
	WriteKey string
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
	// Reporter means that it is the reporter's, which matters only while its node does
	// not report.
	Reporter bool
	Why      string
	Look     string // the command that shows more
	// Until is when to judge again though nothing has changed; zero: not before.
	Until time.Time
}

// withoutPlugins means that the node is known to have nothing to report.
func (n *Node) withoutPlugins() bool { return n.Keys != nil && len(n.Keys) == 0 }

// expects reports whether a node should report on a key.
func (n *Node) expects(keyID string) bool {
	return n.Keys == nil || slices.Contains(n.Keys, keyID)
}

// excused reports whether a node's silence tells nothing about its reporter.
func (n *Node) excused(now time.Time) bool {
	return !n.Ready || n.Leaving || now.Before(n.QuietUntil)
}
