package rollup

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// FirstReport is how long a plugin may be without a report, and a delivery without a change: images are pulled first.
const FirstReport = 5 * time.Minute

// QuietPeriod is for how long missing reports of a node are excused while its API server is replaced: longer
// than a kube-apiserver takes to shut down and its successor to start.
const QuietPeriod = 3 * time.Minute

// MaxExcuse bounds each excuse of a report that became stale, however often its cause returns.
const MaxExcuse = 5 * time.Minute

// Input is the input of Evaluate. All its times but Wall are by the clock of the evaluating process, which took them
// when it saw something: no times of two machines are compared.
type Input struct {
	Now  time.Time
	Wall time.Time // the same by the API server's clock, for StatusSyncers and people
	// Behind is for how long the resource has not been known to be up to date: a watch may stop without an error. A
	// report becomes stale only when it is known not to have changed before.
	Behind  time.Duration
	Reports []Report
	Stood   time.Time // until when KMSPluginsDegraded may stand, which was True when the evaluating process began
	// Off means that no node should report. Unobserved means that it is not known which nodes should; the other
	// conditions then stay. With either, only Delivery is evaluated.
	Off, Unobserved bool
	// Nodes are those with a pod of the API server that is not being deleted. They should report if it has plugins.
	Nodes []Node
	// Others are the nodes of its other running pods: being deleted, a second one on a node, or static and without a
	// mirror. They need not report, but the keys that they write with are in use.
	Others []Node
	// Alone means that it runs outside of pods. What it uses and writes with is not known, and Nodes should have a
	// reporter.
	Alone       bool
	WriteKey    string                              // the keyID that the configuration, as last read, encrypts with
	NoWriteKey  bool                                // there is none: KMS is being turned on or off
	Agreement   Agreement                           // of the previous Result
	NotObserved []Finding                           // without a Node, about what no report shows: its health is not known
	Delivery    Delivery                            // of the reporters
	Owner       string                              // another field manager of KMSPluginsDegraded; empty: none
	Previous    map[string]operatorstatus.Condition // the current conditions, by type
}

// Expects reports whether a node should report. Whoever writes a report chooses its node.
func (in *Input) Expects(node string) bool {
	return slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.Name == node && n.expected() })
}

// Agreement is a KEK ID that all reporters name (empty: they name none, or several), and when the process first saw
// that. Since is that time by the API server's clock, RFC 3339, for people.
type Agreement struct {
	AgreedKey
	Seen      time.Time
	Evaluated bool // by this process; if not, an agreement of an earlier process stays
}

// Delivery is the state of the reporters' delivery: its most severe reason, and a message with all. Zero: not known.
type Delivery struct {
	Reason, Message string
	Since           time.Time // when the evaluating process first saw it so
}

// Node is one with an API server.
type Node struct {
	Name  string
	Ready bool
	// Missing and stale reports, and missing sockets, are excused until then: DownUntil because the Node is not Ready,
	// QuietUntil because its API server is being replaced. The plugin may stop before it, or start after it.
	DownUntil, QuietUntil time.Time
	// PodSeen is when its pod was first seen (zero: before the process). Entries without a Reporter from before do not
	// count.
	PodSeen time.Time
	// Writers are the reporters whose entries are about this pod, by the UIDs of their pods.
	Writers    []string
	Due        time.Time // when the first report is due
	Unattended bool      // the pod has no reporter and gets none, since managementState is Unmanaged
	// Keys are the keyIDs of its plugins: empty if the API server on it does not use
	// KMS; nil while they are not known. Sockets has where each one listens.
	Keys    []string
	Sockets map[string]string
	// NotMounted are keyIDs of plugins whose sockets' folders its pod does not mount from the node, as its agent does.
	NotMounted []string
	// WriteKey is the key that the API server encrypts with; empty: it writes without KMS.
	// WriteKeyNotKnown means that this is not known. WriteKeyOfSome describes what it writes otherwise; empty: nothing.
	WriteKey         string
	WriteKeyNotKnown bool
	WriteKeyOfSome   string
	// Pods are the API server's pods on it, where there are several, and PodsDue when that is a problem.
	Pods    []string
	PodsDue time.Time
	// Faults are containers that cannot start, and prevent the node from serving (PluginNotRunning), or
	// from reporting (ReporterNotRunning), and an API server that does not encrypt (EncryptionNotConfigured).
	Faults []Finding
}

// expected reports whether the node should report.
func (n *Node) expected() bool { return n.Keys == nil || len(n.Keys) > 0 }

// counts reports whether an entry is about a plugin of the node's API server pod, at its socket; true for a nil node.
// An agent also reports on the plugins of other pods.
func (n *Node) counts(e *Entry) bool {
	if n == nil {
		return true
	}
	if n.Keys != nil && !slices.Contains(n.Keys, e.KeyID) {
		return false
	}
	if socket := n.Sockets[e.KeyID]; e.Socket != "" && socket != "" && e.Socket != socket {
		return false
	}
	if e.Reporter == "" {
		return !e.Changed.Before(n.PodSeen)
	}
	return slices.Contains(n.Writers, e.Reporter) && !slices.Contains(n.NotMounted, e.KeyID)
}

// Report is the report of one node in one form, with what the process saw of it.
type Report struct {
	operatorstatus.Report
	Entries []Entry // those of the Report, as seen; of one that cannot be read, one with the error as its detail
	// Overwritten is the last report of another reporter of the node (nil: none): two pods with one each overwrite it.
	Overwritten *Report
}

// StaleFrom is when no entry is valid any more.
func (r *Report) StaleFrom() (at time.Time) {
	for i := range r.Entries {
		at = Latest(at, r.Entries[i].FreshUntil())
	}
	return at
}

// Latest returns the latest of some times.
func Latest(all ...time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) }

// Entry is an entry with what the process saw of it.
type Entry struct {
	contract.Entry
	Changed time.Time // when it was first seen as it is
	// Standing means that it was there when the process began. How long ago it was written is not known.
	Standing bool
	// Outage means that a request had no answer since then, while the entry was valid.
	Outage bool
	// Named is the KEK ID that the plugin named last, and NamedAt when that was seen. It may not have answered since.
	Named   string
	NamedAt time.Time
}

// outagePeriod is how much longer an entry counts, once, if the process began or a request had no answer since it
// changed: its reporter may have lost the API server, too. Kubelets back off to half a minute, and until then show a
// pod that was replaced like one whose reporter stopped.
const outagePeriod = time.Minute

// FreshUntil is the first instant at which the entry is stale, unless it changes.
func (e *Entry) FreshUntil() time.Time {
	until := e.Changed.Add(e.Validity())
	if e.Standing || e.Outage {
		until = until.Add(outagePeriod)
	}
	return until
}
