package rollup

import (
	"errors"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

type list = []operatorstatus.Report

// now is the time of the evaluation.
var now = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

func in(seconds int) time.Time { return ago(-seconds) }

// valid is for how many seconds an entry of healthy is fresh.
const valid = contract.StaleIntervals * 30

// healthy is a healthy entry of some seconds ago, checked every 30 seconds.
func healthy(key string, age int) contract.Entry {
	return contract.Entry{KeyID: key, KEKID: "k-7", Status: contract.Healthy, LastChecked: ago(age),
		Interval: 30 * time.Second}
}

func unhealthy(key string, age int, detail string) contract.Entry {
	e := healthy(key, age)
	e.Status, e.Detail = contract.Unhealthy, detail
	return e
}

func inError(key string, age int, detail string) contract.Entry {
	e := healthy(key, age)
	e.Status, e.Detail, e.KEKID = contract.Error, detail, ""
	return e
}

// socketless is an error because the plugin's socket does not exist.
func socketless(key string, age int) contract.Entry {
	e := inError(key, age, "no such file or directory")
	e.Reason = contract.SocketMissing
	return e
}

func every(seconds int, e contract.Entry) contract.Entry {
	e.Interval = time.Duration(seconds) * time.Second
	return e
}

func naming(kekID string, e contract.Entry) contract.Entry {
	e.KEKID = kekID
	return e
}

// from is a condition of ours, written as soon as its newest entry was made.
func from(node string, entries ...contract.Entry) operatorstatus.Report {
	r := operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition, Entries: entries, Ours: true,
		Writer: contract.ConditionManager(node)}
	for _, e := range entries {
		if e.LastChecked.After(r.Written) {
			r.Written = e.LastChecked
		}
	}
	return r
}

// thirdParty is the report of another reporter, in the typed form, which has no interval.
func thirdParty(node string, entries ...contract.Entry) operatorstatus.Report {
	r := from(node, entries...)
	r.Form, r.Ours, r.Writer = operatorstatus.FormTyped, false, "kms-plugin-monitor"
	r.Entries = slices.Clone(entries)
	for i := range r.Entries {
		r.Entries[i].Interval = 0
	}
	return r
}

func unreadable(node string) operatorstatus.Report {
	return operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition, Err: errors.New("message is not a JSON array"),
		Ours: true, Written: ago(5)}
}

// written sets when the API server stored a report.
func written(age int, r operatorstatus.Report) operatorstatus.Report {
	r.Written = ago(age)
	return r
}

// by names the reporter of a report's entries.
func by(reporter string, r operatorstatus.Report) operatorstatus.Report {
	r.Entries = slices.Clone(r.Entries)
	for i := range r.Entries {
		r.Entries[i].Reporter = reporter
	}
	return r
}

// attended is a node whose API server's pod has these reporters.
func attended(n Node, reporters ...string) Node {
	n.Writers = reporters
	return n
}

// unattended is a node without a reporter while the operator is Unmanaged.
func unattended(n Node) Node {
	n.Unattended = true
	return n
}

// on is a Ready node whose pod is a day old, and whose plugins have just been seen as
// expected; without keys they are not known.
func on(name string, keys ...string) Node {
	n := Node{Name: name, Ready: true, PodSince: ago(86400), Keys: keys}
	n.Due = map[string]time.Time{"": now.Add(FirstReport)}
	for _, key := range keys {
		n.Due[key] = now.Add(FirstReport)
	}
	if len(keys) > 0 {
		n.WriteKey = keys[0]
	}
	return n
}

// overdue is a node whose plugins have been expected for longer than a first report may take.
func overdue(n Node) Node {
	n.Due = nil
	return n
}

// noKMS is a node whose API server has no plugin.
func noKMS(name string) Node {
	n := on(name)
	n.Keys = []string{}
	return n
}

// reading is a node whose API server writes without KMS.
func reading(n Node) Node {
	n.WriteKey = ""
	return n
}

func down(n Node) Node {
	n.Ready = false
	return n
}

// since is a node whose pod was made some seconds ago, of which the caller knows no
// replacement.
func since(age int, n Node) Node {
	n.PodSince = ago(age)
	return n
}

// renewed is a node whose pod was made some seconds ago.
func renewed(age int, n Node) Node {
	n.PodSince = ago(age)
	n.QuietUntil = n.PodSince.Add(QuietPeriod)
	return n
}

// replacing is a node whose API server is to be replaced within some seconds.
func replacing(within int, n Node) Node {
	n.QuietUntil = ago(-within)
	return n
}

// broken is a node with a container that cannot start.
func broken(n Node, container, why string) Node {
	n.Faults = append(slices.Clone(n.Faults),
		Finding{Reason: contract.PluginNotRunning, Node: n.Name, Text: "container " + container + " cannot start",
			Detail: why, Look: "oc describe pod -n kms pod-" + n.Name})
	return n
}

// reporterBroken is a node whose reporter's container cannot start.
func reporterBroken(n Node) Node {
	n = broken(n, "kms-health", "CrashLoopBackOff, exit code 2")
	n.Faults[len(n.Faults)-1].Reason = contract.ReporterNotRunning
	return n
}

// withLook is a node with commands that show the logs of key 2 and of the reporter.
func withLook(n Node) Node {
	n.Look = map[string]string{"2": "oc logs -n ns pod-" + n.Name + " -c kms-2", "": "oc logs -n kms reporter-" + n.Name}
	return n
}

// abc are three nodes with the plugins of given keys.
func abc(keys ...string) []Node { return []Node{on("a", keys...), on("b", keys...), on("c", keys...)} }

// bIs are a, b and c with one plugin, of which b is changed.
func bIs(change func(Node) Node) []Node {
	return []Node{on("a", "2"), change(on("b", "2")), on("c", "2")}
}

// bRenewed are a, b and c, of which b was renewed some seconds ago.
func bRenewed(age int) []Node { return bIs(func(n Node) Node { return renewed(age, n) }) }

// each returns the same report of a, b and c.
func each(entries ...contract.Entry) []operatorstatus.Report {
	return list{from("a", entries...), from("b", entries...), from("c", entries...)}
}

// but puts reports in the place of those of the same node and form.
func but(all []operatorstatus.Report, others ...operatorstatus.Report) []operatorstatus.Report {
	all = slices.Clone(all)
	for _, r := range others {
		at := slices.IndexFunc(all, func(had operatorstatus.Report) bool { return had.Node == r.Node && had.Form == r.Form })
		if at < 0 {
			all = append(all, r)
		} else {
			all[at] = r
		}
	}
	return all
}
