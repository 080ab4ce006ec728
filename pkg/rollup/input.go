package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Input is the input of Evaluate.
type Input struct {
	Now     time.Time
	Reports []operatorcr.Report
	Began   time.Time // when the evaluating process first saw the target
	// Nodes are those with a pod of the target that is scheduled and not being deleted.
	// They should report if that pod has plugins.
	Nodes []Node
	// Others are what the target's other running pods write with: those that are being deleted, and an
	// earlier one of a node. They need not report, but a key that one writes with is in use.
	Others []Writer
	// Alone means that no API server has a pod: Nodes are those with a reporter. A plugin
	// that they report to be unhealthy is; what API servers use, and write with, is not known.
	Alone bool
	// WriteKey is the keyID of the plugin that encrypts new data by the configuration; empty while
	// that is not known, and then the one that all nodes write with.
	WriteKey    string
	NoWriteKey  bool                            // there is none: KMS is being turned off
	NotObserved []Finding                       // without a Node, about what no report shows: its health is not known
	Delivery    Delivery                        // of the reporters
	Previous    map[string]operatorcr.Condition // the current conditions, by type
}

// Node is one with an API server.
type Node struct {
	Name  string
	Ready bool // while the Node is not, missing reports are the node controller's own condition
	// PodSince is when the API server's pod on it was started, by the node's clock: entries that do not
	// name their reporter are about another pod if they are earlier.
	PodSince time.Time
	// Writers are the reporters whose entries are about this pod, by the UIDs of their pods.
	// Nil: not known, so every entry counts.
	Writers []string
	// Started is when the API server's container was last started, and ReporterCreated, when its reporter's
	// pod was; zero: there is none. ExpectedSince is when each plugin was first seen as expected, under the
	// empty keyID while they are not known. The latest begins the time that a first report may take.
	Started, ReporterCreated time.Time
	ExpectedSince            map[string]time.Time
	Unattended               bool      // nothing keeps a reporter for the pod, which has none: while Unmanaged
	QuietUntil               time.Time // missing reports are excused, since the API server is being replaced
	Leaving                  bool      // its API server has exited normally, so that its plugins may exit, too
	// Keys are the keyIDs of its plugins: empty if the API server on it does not use
	// KMS; nil while they are not known. WriteKey is the one that it encrypts with; empty:
	// it writes without KMS. WriteKeyNotKnown means that these are only how they once were.
	Keys             []string
	WriteKey         string
	WriteKeyNotKnown bool
	// NotLoaded means that the pod uses a configuration that was written after its API server
	// was started, and so may write with an earlier one.
	NotLoaded bool
	// Faults are containers that cannot start, and prevent the node from serving (PluginNotRunning), or
	// from reporting (ReporterNotRunning).
	Faults []Finding
	Look   map[string]string // the command that shows a plugin's log, by keyID, and the reporter's, under ""
}

// Writer is an API server that runs on a node, and the key that it encrypts with; empty: it
// writes without KMS.
type Writer struct {
	Node, WriteKey string
	NotKnown       bool // which one
}

// writesKnown reports whether it is known what the API server writes with.
func (n *Node) writesKnown() bool { return n.Keys != nil && !n.WriteKeyNotKnown && !n.NotLoaded }

// withoutPlugins means that the node is known to have nothing to report.
func (n *Node) withoutPlugins() bool { return n.Keys != nil && len(n.Keys) == 0 }

// expects reports whether a node should report on a key.
func (n *Node) expects(keyID string) bool {
	return n.Keys == nil || slices.Contains(n.Keys, keyID)
}

// counts reports whether an entry is about the node's API server pod; earlier, whether it was made
// before that pod.
func (n *Node) counts(e *contract.Entry, earlier bool) bool {
	if e.Reporter == "" {
		return !earlier
	}
	return n.Writers == nil || slices.Contains(n.Writers, e.Reporter)
}

// excused reports whether missing reports of a node are not its reporter's failure.
func (n *Node) excused(now time.Time) bool {
	return !n.Ready || n.Leaving || now.Before(n.QuietUntil)
}
