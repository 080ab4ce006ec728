package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// FirstReport is how long a plugin may be expected without a report, and a delivery be under way without
// a change, before that is a problem: images are pulled, and credentials made.
const FirstReport = 5 * time.Minute

// QuietPeriod is for how long missing reports of a node are excused while its API server is replaced: longer
// than a kube-apiserver takes to shut down and its successor to start.
const QuietPeriod = 3 * time.Minute

// Input is the input of Evaluate.
type Input struct {
	Now     time.Time
	Reports []operatorstatus.Report
	Began   time.Time // when the evaluating process first saw the target
	// Off means that no node should report, and Unobserved, that it is not known which should. Then Delivery
	// alone is evaluated; where Unobserved, the other conditions stay.
	Off, Unobserved bool
	// Nodes are those with a pod of the target that is scheduled and not being deleted.
	// They should report if that pod has plugins.
	Nodes []Node
	// Others are those of the target's other running pods: those that are being deleted, and an earlier one of a
	// node. They need not report, but a key that one writes with is in use: that alone is known of them.
	Others []Node
	// Alone means that no API server has a pod: Nodes are those with a reporter. A plugin
	// that they report to be unhealthy is; what API servers use, and write with, is not known.
	Alone bool
	// WriteKey is the keyID of the plugin that encrypts new data by the configuration; empty while
	// that is not known, and then the one that all nodes write with.
	WriteKey    string
	NoWriteKey  bool                                // there is none: KMS is being turned off
	NotObserved []Finding                           // without a Node, about what no report shows: its health is not known
	Delivery    Delivery                            // of the reporters
	Previous    map[string]operatorstatus.Condition // the current conditions, by type
}

// Delivery is how the delivery of the reporters stands: its most severe reason, and a message
// with all of them. The zero Delivery is not known yet.
type Delivery struct {
	Reason, Message string
	Since           time.Time // when the evaluating process first saw it so
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
	// Due is when the first report on each plugin is, under the empty keyID while they are not known.
	Due        map[string]time.Time
	Unattended bool      // nothing keeps a reporter for the pod, which has none: while Unmanaged
	QuietUntil time.Time // missing reports are excused, since the API server is being replaced
	// Keys are the keyIDs of its plugins: empty if the API server on it does not use
	// KMS; nil while they are not known. WriteKey is the one that it encrypts with; empty:
	// it writes without KMS. WriteKeyNotKnown means that this is not known.
	Keys             []string
	WriteKey         string
	WriteKeyNotKnown bool
	// Faults are containers that cannot start, and prevent the node from serving (PluginNotRunning), or
	// from reporting (ReporterNotRunning).
	Faults []Finding
	Look   map[string]string // the command that shows a plugin's log, by keyID, and the reporter's, under ""
}

// counts reports whether an entry of a report is about the node's API server pod. A nil node's do.
func (n *Node) counts(r *operatorstatus.Report, e *contract.Entry) bool {
	switch {
	case n == nil:
		return true
	case e.Reporter == "":
		return !e.LastChecked.Add(-r.Ahead).Before(n.PodSince)
	}
	return n.Writers == nil || slices.Contains(n.Writers, e.Reporter)
}
