package rollup

import (
	"errors"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

type list = []Report

// now is the time of the evaluation.
var now = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

func in(seconds int) time.Time { return ago(-seconds) }

// valid is the greatest age in seconds at which an entry of healthy is fresh.
const valid = contract.StaleIntervals*30 - 1

// agreement2 is the agreement of API servers that have written with key 2 for long.
var agreement2 = Agreement{AgreedKey: AgreedKey{"2", "k-7", "2026-05-08T11:43:20Z"}, Seen: ago(1000)}

// healthy returns a healthy entry that changed age seconds ago, with an interval of 30 s, from a node whose clock is
// days behind.
func healthy(key string, age int) Entry {
	e := contract.Entry{KeyID: key, KEKID: "k-7", Status: contract.Healthy, LastChecked: ago(age).AddDate(0, 0, -9),
		Interval: 30 * time.Second}
	return Entry{Entry: e, Changed: ago(age), Named: "k-7", NamedAt: ago(age)}
}

func unhealthy(key string, age int, detail string) Entry {
	e := healthy(key, age)
	e.Status, e.Detail = contract.Unhealthy, detail
	return e
}

func inError(key string, age int, detail string) Entry {
	e := healthy(key, age)
	e.Status, e.Detail, e.KEKID = contract.Error, detail, ""
	return e
}

// socketless returns the error of a plugin whose socket does not exist.
func socketless(age int) Entry {
	e := inError("2", age, "no such file or directory")
	e.Reason = contract.SocketMissing
	return e
}

func every(seconds int, e Entry) Entry {
	e.Interval = time.Duration(seconds) * time.Second
	return e
}

func naming(kekID string, e Entry) Entry {
	e.KEKID = kekID
	return e
}

// from returns the report in a condition of this project's reporter.
func from(node string, entries ...Entry) Report {
	return Report{Report: operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition}, Entries: entries}
}

// thirdParty returns the report of another reporter, in the typed form, which has no interval.
func thirdParty(node string, entries ...Entry) Report {
	r := from(node, slices.Clone(entries)...)
	r.Form = operatorstatus.FormTyped
	for i := range r.Entries {
		r.Entries[i].Interval = 0
	}
	return r
}

func unreadable(node string) Report {
	r := from(node)
	r.Err = errors.New("message is not a JSON array")
	return r
}

// standing marks an entry that existed when the process began.
func standing(e Entry) Entry {
	e.Standing = true
	return e
}

// by sets the reporter of a report's entries.
func by(reporter string, r Report) Report {
	r.Entries = slices.Clone(r.Entries)
	for i := range r.Entries {
		r.Entries[i].Reporter = reporter
	}
	return r
}

// on returns a Ready node whose pod is older than the process, and whose plugins have just become expected. Without
// keys its plugins are unknown.
func on(name string, keys ...string) Node {
	n := Node{Name: name, Ready: true, Keys: keys, Writers: []string{"u"}}
	n.Sockets = map[string]string{"2": "/run/kms-2.sock"}
	n.Due = now.Add(FirstReport)
	if len(keys) > 0 {
		n.WriteKey = keys[0]
	}
	return n
}

// noKMS returns a node whose API server has no plugin.
func noKMS(name string) Node {
	n := on(name)
	n.Keys = []string{}
	return n
}

// at sets the socket of an entry.
func at(socket string, e Entry) Entry {
	e.Socket = socket
	return e
}

// with changes a node.
func with(n Node, changes ...func(*Node)) Node {
	for _, change := range changes {
		change(&n)
	}
	return n
}

// Changes of a node: its API server writes without KMS; its first reports are overdue; it has no reporter while the
// operator is Unmanaged; its API server does not mount the folder of its plugin's socket, does not encrypt, or encrypts
// some resources otherwise; it is not Ready, and excused or no longer excused.
func reading(n *Node)     { n.WriteKey = "" }
func overdue(n *Node)     { n.Due = time.Time{} }
func unattended(n *Node)  { n.Unattended = true }
func unmounted(n *Node)   { n.NotMounted = []string{"2"} }
func unencrypted(n *Node) { fault(n, contract.EncryptionNotConfigured, "no flag", "") }
func mixed(n *Node)       { n.WriteKeyOfSome = "secrets: aescbc" }
func down(n *Node)        { n.Ready, n.DownUntil = false, in(1800) }
func longDown(n *Node)    { n.Ready = false }

// attended sets the reporters of a node's API server pod.
func attended(reporters ...string) func(*Node) { return func(n *Node) { n.Writers = reporters } }

// shared gives a node two pods of the API server, which becomes a problem after some seconds.
func shared(within int) func(*Node) {
	return func(n *Node) { n.Pods, n.PodsDue = []string{"ns/api-1", "ns/api-2"}, in(within) }
}

// since makes a node's pod first seen some seconds ago, without an excuse for a replacement.
func since(age int) func(*Node) { return func(n *Node) { n.PodSeen = ago(age) } }

// renewed makes a node's pod a replacement that was first seen some seconds ago, with its excuses.
func renewed(age int) func(*Node) {
	return func(n *Node) { n.PodSeen, n.QuietUntil = ago(age), ago(age).Add(QuietPeriod) }
}

// replacing makes a node's API server one that is being replaced, and excused for some more seconds.
func replacing(within int) func(*Node) { return func(n *Node) { n.QuietUntil = in(within) } }

func fault(n *Node, reason, text, why string) {
	n.Faults = append(slices.Clone(n.Faults), Finding{Reason: reason, Node: n.Name, Text: text, Detail: why})
}

// broken gives a node a container that cannot start.
func broken(container, why string) func(*Node) {
	return func(n *Node) { fault(n, contract.PluginNotRunning, "container "+container+" cannot start", why) }
}

// reporterBroken makes a node's reporter one whose container cannot start.
func reporterBroken(n *Node) {
	fault(n, contract.ReporterNotRunning, "container kms-health cannot start", "CrashLoopBackOff, exit code 2")
}

// timedOut returns the error of a plugin that timed out, and named its KEK ID some seconds ago.
func timedOut(age, named int) Entry {
	e := inError("2", age, "no answer")
	e.Reason, e.NamedAt = contract.Timeout, ago(named)
	return e
}

// abc returns three nodes with the plugins of these keys.
func abc(keys ...string) []Node { return []Node{on("a", keys...), on("b", keys...), on("c", keys...)} }

// aIs returns the node a, changed, and bIs returns a, b and c with b changed.
func aIs(changes ...func(*Node)) []Node { return []Node{with(on("a", "2"), changes...)} }
func bIs(changes ...func(*Node)) []Node {
	return []Node{on("a", "2"), with(on("b", "2"), changes...), on("c", "2")}
}

// each returns the same report of a, b and c.
func each(entries ...Entry) []Report {
	return list{from("a", entries...), from("b", entries...), from("c", entries...)}
}

// but replaces reports of the same node and form, or adds them.
func but(all []Report, others ...Report) []Report {
	all = slices.Clone(all)
	for _, r := range others {
		at := slices.IndexFunc(all, func(had Report) bool { return had.Node == r.Node && had.Form == r.Form })
		if at < 0 {
			all = append(all, r)
		} else {
			all[at] = r
		}
	}
	return all
}

// process evaluates a roll-up over time.
type process struct {
	seen       Seen
	agreement  Agreement
	previous   map[string]operatorstatus.Condition
	ahead      time.Duration // how far the API server's clock is ahead
	unanswered time.Time     // when a request last had no answer
}

// at evaluates at a time in seconds.
func (p *process) at(seconds int, nodes []Node, reports ...operatorstatus.Report) *Result {
	r := Evaluate(&Input{Now: in(seconds), Wall: in(seconds).Add(p.ahead), WriteKey: "2", Nodes: nodes,
		Reports: p.seen.Observe(in(seconds), in(seconds), p.unanswered, reports), Previous: p.previous, Agreement: p.agreement})
	p.previous, p.agreement = r.Conditions, r.Agreement
	return r
}

// wrote returns a report as a node's reporter has written it.
func wrote(node string, entries ...contract.Entry) operatorstatus.Report {
	return operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition, Entries: entries}
}

// is returns the status and the reason of a condition.
func (r *Result) is(kind string) string {
	return r.Conditions[kind].Status + " " + r.Conditions[kind].Reason
}

func (r *Result) degraded() string { return r.is(contract.PluginsDegraded) }
func (r *Result) agreed() string   { return r.is(contract.WriteKeyAgreed) }
