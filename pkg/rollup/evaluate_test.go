package rollup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Common results.
const (
	fine            = "False AsExpected" // Degraded
	awaiting        = "False Progressing"
	observed        = "True AsExpected"
	agreed          = "True AsExpected"
	notYet          = "False WriteKeyNotDeployed"
	stale           = "Unknown ReporterStale"
	late            = "False ReporterStale" // Reporting
	missing         = "Unknown Progressing" // a first report may still come
	notRunning      = "False ReporterNotRunning"
	unmanaged       = "Unknown Unmanaged"
	others          = "False OtherPlugins"
	failed          = "True PluginError"
	pluginUnhealthy = "True PluginUnhealthy"
	stopped         = "True PluginNotRunning"
	garbage         = "Unknown ReportUnreadable"
	noReport        = "Unknown ReportsMissing" // WriteKeyAgreed
	keyUnhealthy    = "Unknown PluginUnhealthy"
	differ          = "False KeysDiffer"
	noKey           = "Unknown WriteKeyUnknown"
)

var two, ok = abc("2"), each(healthy("2", 5))
var old, fresh = each(healthy("1", 5)), healthy("2", 5)

// b returns a report of b, with healthy ones of the other nodes.
func b(entries ...Entry) list { return but(ok, from("b", entries...)) }

var verdicts = []struct {
	name     string
	nodes    []Node
	reports  []Report
	degraded string
	observed string
	agreed   string
}{
	// Each state of a plugin, a reporter and a node.
	{"all fresh and healthy", two, ok, fine, observed, agreed},
	{"all healthy on two keys", abc("2", "1"), each(fresh, healthy("1", 5)), fine, observed, agreed},
	{"one unhealthy", two, b(unhealthy("2", 5, "sealed")), pluginUnhealthy, observed, keyUnhealthy},
	{"one error", two, b(inError("2", 5, "refused")), failed, observed, keyUnhealthy},
	{"a container cannot start: image",
		[]Node{on("a", "2"), broken(on("b", "2"), "kms-2", "ImagePullBackOff"), on("c", "2")}, ok[:1], stopped, missing,
		noReport},
	{"a reporter cannot start", []Node{on("a", "2"), reporterBroken(on("b", "2"))}, ok[:1], awaiting,
		notRunning, noReport},
	{"a reporter cannot start any more", []Node{on("a", "2"), reporterBroken(on("b", "2"))},
		but(ok[:2], from("b", healthy("2", 999))), stale, notRunning, "Unknown ReporterStale"},
	{"a reporter crashes, and reports all the same", []Node{on("a", "2"), reporterBroken(on("b", "2")), on("c", "2")}, ok,
		fine, notRunning, agreed},
	{"a reporter crashes, and reports an unhealthy plugin", []Node{reporterBroken(on("a", "2"))},
		list{from("a", inError("2", 5, "refused"))}, failed, notRunning, keyUnhealthy},
	{"an unhealthy plugin outweighs a reporter that cannot start", []Node{on("a", "2"), reporterBroken(on("b", "2"))},
		list{from("a", unhealthy("2", 5, "sealed"))}, pluginUnhealthy, notRunning, keyUnhealthy},
	{"a container cannot start: crash loop, others healthy",
		[]Node{on("a", "2"), broken(on("b", "2"), "kms-2", "CrashLoopBackOff: exit code 1"), on("c", "2")}, ok, stopped,
		observed, agreed},
	{"nothing observed yet", two, nil, awaiting, missing, noReport},
	{"no node, no report", nil, nil, "False NoPods", "False NoPods", noKey},
	{"a reporter stopped, its Node is Ready", two, b(healthy("2", valid+1)), stale, late, stale},
	{"a reporter stopped, its Node is not Ready, last report healthy", bIs(down), b(healthy("2", 999)), fine, stale, stale},
	{"a reporter stopped, its Node is not Ready, last report unhealthy", bIs(down), b(unhealthy("2", 999, "sealed")),
		pluginUnhealthy, stale, stale},
	{"a reporter stopped, its Node is not Ready, last report error", bIs(down), b(inError("2", 999, "refused")), failed,
		stale, stale},
	{"one is missing", two, ok[:2], awaiting, missing, noReport},
	{"one reports on another key", two, b(healthy("1", 5)), awaiting, others, noReport},
	{"one does not report on a key that it should", abc("2", "1"), but(each(fresh, healthy("1", 5)), from("b", fresh)),
		awaiting, missing, agreed},
	{"the write key's ids differ", two, b(naming("k-8", fresh)), fine, observed, differ},
	{"another key's ids may differ", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", fresh, naming("k-9", healthy("1", 5)))), fine, observed, agreed},
	{"a node has no plugin", []Node{{Name: "a", Ready: true, Keys: []string{}}}, nil, "False NoPlugins", "True NoPlugins",
		noKey},

	// Freshness.
	{"just not stale", two, each(healthy("2", valid)), fine, observed, agreed},
	{"all stale", two, each(healthy("2", valid+1)), stale, late, stale},
	{"one key of two is stale", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", fresh, every(1, healthy("1", contract.StaleIntervals+1)))), stale, late,
		agreed},
	{"the write key of two is stale", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", every(1, healthy("2", contract.StaleIntervals+1)), healthy("1", 5))),
		stale, late, stale},
	{"stale, and unhealthy before", two, b(inError("2", valid+1, "refused")), failed, late, stale},
	{"stale, and unhealthy for hours before", two, b(unhealthy("2", 9999, "sealed")), pluginUnhealthy, late, stale},
	{"an interval of an hour", two, each(every(3600, healthy("2", contract.StaleIntervals*3600-1))), fine, observed, agreed},
	{"no interval is 30 seconds", two, each(every(0, healthy("2", valid))), fine, observed, agreed},
	{"no interval is 30 seconds, and stale", two, each(every(0, healthy("2", valid+1))), stale, late, stale},

	// Missing reports that are excused, and those that are not.
	{"replaced, last report healthy", bRenewed(179), b(healthy("2", 300)), awaiting, missing, noReport},
	{"QuietPeriod is over", bRenewed(180), b(every(1, healthy("2", 170))), stale, late, stale},
	{"replaced, the last report of the previous pod does not count", bRenewed(60),
		b(every(1, inError("2", 61, "refused"))), awaiting, missing, noReport},
	{"replaced, the last report of this pod counts", bRenewed(60), b(every(1, inError("2", 60, "refused"))), failed, stale,
		stale},
	{"not Ready, the last report of the previous pod does not count",
		[]Node{on("a", "2"), down(renewed(600, on("b", "2"))), on("c", "2")}, b(unhealthy("2", 601, "sealed")), awaiting,
		missing, noReport},
	{"not Ready, but it reports unhealthy", bIs(down), b(unhealthy("2", 5, "sealed")), pluginUnhealthy, observed,
		keyUnhealthy},
	{"replaced, but it reports unhealthy", bRenewed(30), b(unhealthy("2", 5, "sealed")), pluginUnhealthy, observed,
		keyUnhealthy},
	{"replaced, a recent report of the previous pod does not count", bRenewed(30), b(inError("2", 31, "refused")),
		awaiting, missing, noReport},
	{"replaced, the first report of this pod counts", bRenewed(30), b(inError("2", 30, "refused")), failed, observed,
		keyUnhealthy},
	{"not Ready, a recent report of the previous pod does not count",
		[]Node{on("a", "2"), down(since(200, on("b", "2"))), on("c", "2")}, b(every(60, unhealthy("2", 201, "sealed"))),
		awaiting, missing, noReport},
	{"replaced, and unreadable", bRenewed(30), but(ok, unreadable("b")), fine, garbage, garbage},
	{"not Ready for half an hour, last report healthy", bIs(longDown), b(healthy("2", 9999)), stale, late, stale},
	{"not Ready for half an hour, and it has not reported", bIs(func(n Node) Node { return overdue(longDown(n)) }), ok[:1],
		"Unknown ReportsMissing", "False ReportsMissing", noReport},
	{"no socket, and then no reports, its Node is down for half an hour", bIs(longDown), b(socketless("2", 9999)), stale,
		late, stale},
	{"not Ready, and unreadable", bIs(down), but(ok, unreadable("b")), fine, garbage, garbage},
	{"being replaced, last report healthy", []Node{on("a", "2"), replacing(60, on("b", "2")), on("c", "2")},
		b(healthy("2", 300)), fine, stale, stale},
	{"being replaced, silent for longer than any excuse", bIs(func(n Node) Node { return replacing(60, n) }),
		b(healthy("2", valid+301)), stale, late, stale},
	{"renewed, and it has not reported yet", bRenewed(5), ok[:1], awaiting, missing, noReport},
	{"not Ready, and it has not reported yet", []Node{on("a", "2"), down(on("b", "2"))}, ok[:1], awaiting, missing,
		noReport},
	{"all not Ready", []Node{down(on("a", "2")), down(on("b", "2"))}, each(healthy("2", 500))[:2], fine, stale, stale},

	// A missing socket: the plugin has ended, or has not started.
	{"no socket", two, b(socketless("2", 5)), failed, observed, keyUnhealthy},
	{"no socket, its API server starts", bRenewed(5), b(socketless("2", 1)), fine, observed, keyUnhealthy},
	{"no socket, its API server started", bRenewed(180), b(socketless("2", 1)), failed, observed, keyUnhealthy},
	{"no socket, its API server is about to be replaced", []Node{on("a", "2"), replacing(60, on("b", "2")), on("c", "2")},
		b(socketless("2", 1)), fine, observed, keyUnhealthy},
	{"no socket, its API server should have been replaced",
		[]Node{on("a", "2"), replacing(-1, on("b", "2")), on("c", "2")}, b(socketless("2", 1)), failed, observed,
		keyUnhealthy},
	{"no socket, its Node shuts down", bIs(down), b(socketless("2", 1)), fine, observed, keyUnhealthy},
	{"no socket, and then no reports, its Node is down", bIs(down), b(socketless("2", 999)), fine, stale, stale},
	{"no socket, the plugin was removed", []Node{on("a", "2"), noKMS("b")}, but(ok[:1], from("b", socketless("2", 1))),
		fine, observed, notYet},
	{"no socket, that plugin alone was removed", []Node{on("a", "2")}, list{from("a", fresh, socketless("1", 1))}, fine,
		others, agreed},
	{"no socket of one key while another's plugin is unhealthy", []Node{renewed(5, on("a", "2", "1"))},
		list{from("a", socketless("2", 1), unhealthy("1", 1, "x"))}, pluginUnhealthy, observed, keyUnhealthy},

	// Who wrote a report.
	{"by the companion beside its pod", []Node{attended(on("a", "2"), "u1")}, list{by("u1", from("a", fresh))}, fine,
		observed, agreed},
	{"by the companion beside the pod before", []Node{attended(on("a", "2"), "u1")}, list{by("u0", from("a", fresh))},
		awaiting, missing, noReport},
	{"by the companion beside the pod before, and in error", []Node{attended(on("a", "2"), "u1")},
		list{by("u0", from("a", inError("2", 5, "refused")))}, awaiting, missing, noReport},
	{"by the companion, its node's clock 4 seconds behind", []Node{attended(renewed(3, on("a", "2")), "u1")},
		list{by("u1", from("a", healthy("2", 7)))}, fine, observed, agreed},
	{"by an agent, also before the API server was restarted", []Node{attended(renewed(5, on("a", "2")), "agent")},
		list{by("agent", from("a", healthy("2", 20)))}, fine, observed, agreed},
	{"by an agent, unhealthy before the API server was restarted", []Node{attended(since(5, on("a", "2")), "agent")},
		list{by("agent", from("a", unhealthy("2", 20, "sealed")))}, pluginUnhealthy, observed, keyUnhealthy},
	{"by one that was set up by hand, since the pod's start", []Node{attended(since(5, on("a", "2")))},
		list{from("a", fresh)}, fine, observed, agreed},
	{"by one that was set up by hand, before the pod's start", []Node{attended(since(4, on("a", "2")), "u1")},
		list{from("a", fresh)}, awaiting, missing, noReport},

	// A plugin is its key ID and its socket.
	{"about its socket", []Node{listening(on("a", "2"))}, list{from("a", at("/run/kms-2.sock", fresh))}, fine, observed,
		agreed},
	{"about a socket of before", []Node{listening(on("a", "2"))}, list{from("a", at("/old/kms-2.sock", fresh))}, awaiting,
		missing, noReport},
	{"about a socket of before, and unhealthy", []Node{listening(on("a", "2"))},
		list{from("a", at("/old/kms-2.sock", inError("2", 5, "refused")))}, awaiting, missing, noReport},
	{"about a folder that its API server does not mount", []Node{unmounted(on("a", "2"))}, list{by("u", from("a", fresh))},
		awaiting, missing, noReport},
	{"without a socket", []Node{listening(on("a", "2"))}, list{from("a", fresh)}, fine, observed, agreed},
	{"also about a plugin of other pods", []Node{probing(on("a", "2"), "1")}, list{from("a", fresh, inError("1", 5, "x"))},
		fine, observed, agreed},

	// Several pods of the API server on a node.
	{"two pods for a moment", []Node{shared(on("a", "2"), 1)}, ok[:1], fine, observed, "Unknown SeveralPods"},
	{"two pods for long", []Node{shared(on("a", "2"), 0)}, ok[:1], fine, "False SeveralPods", "Unknown SeveralPods"},

	// An API server that does not encrypt, or not everything with one key.
	{"no flag", []Node{on("a", "2"), unencrypted(on("b", "2"))}, ok[:2], "True EncryptionNotConfigured", observed,
		"False EncryptionNotConfigured"},
	{"another key for some resources", []Node{on("a", "2"), mixed(on("b", "2"))}, ok[:2], fine, observed,
		"False WriteKeyOfSome"},

	// What an earlier process saw.
	{"standing, and healthy", two, each(standing(fresh)), awaiting, missing, agreed},
	{"standing, and unhealthy", two, b(standing(unhealthy("2", 5, "sealed"))), pluginUnhealthy, observed, keyUnhealthy},
	{"standing for too long", two, b(standing(healthy("2", valid+61))), stale, late, stale},

	// A plugin that did not answer in time.
	{"a time-out", two, b(timedOut(5, 35)), failed, observed, agreed},
	{"time-outs for as long as an entry is valid", two, b(timedOut(5, valid+1)), failed, observed, keyUnhealthy},

	// Typed reports, of OpenShift's own reporter.
	{"typed alone", two, list{thirdParty("a", fresh), thirdParty("b", fresh), thirdParty("c", fresh)}, fine, observed,
		agreed},
	{"typed has no interval: at the last instant", two[:1], list{thirdParty("a", every(1, healthy("2", valid)))}, fine,
		observed, agreed},
	{"typed has no interval: stale after it", two[:1], list{thirdParty("a", every(3600, healthy("2", valid+1)))}, stale,
		late, stale},
	{"typed, unhealthy", two[:1], list{thirdParty("a", unhealthy("2", 5, "sealed"))}, pluginUnhealthy, observed,
		keyUnhealthy},
	{"typed, of the pod before", []Node{since(4, on("a", "2"))}, list{thirdParty("a", fresh)}, awaiting, missing,
		noReport},
	{"typed, its writes are rejected while its plugin is unhealthy", two,
		list{thirdParty("a", fresh), thirdParty("b", healthy("2", valid+1)), thirdParty("c", fresh)}, stale, late, stale},
	{"a condition on some nodes, typed on others", two, list{from("a", fresh), thirdParty("b", fresh), from("c", fresh)},
		fine, observed, agreed},

	// With a condition for the same pod they do not count, unless the condition is stale or unreadable.
	{"both agree", two[:1], list{from("a", fresh), thirdParty("a", fresh)}, fine, observed, agreed},
	{"unhealthy, while a newer typed one is healthy", two[:1],
		list{from("a", inError("2", 20, "refused")), thirdParty("a", fresh)}, failed, observed, keyUnhealthy},
	{"healthy, while a newer typed one is in error", two[:1],
		list{from("a", healthy("2", 20)), thirdParty("a", inError("2", 5, "refused"))}, fine, observed, agreed},
	{"a key that is typed only is not reported", []Node{on("a", "2", "1")},
		list{from("a", fresh), thirdParty("a", healthy("1", 6))}, awaiting, missing, agreed},
	{"stale, while the typed one is healthy", two[:1], list{from("a", healthy("2", valid+1)), thirdParty("a", fresh)},
		stale, late, stale},
	{"stale and in error, while the typed one is healthy", two[:1],
		list{from("a", inError("2", 999, "refused")), thirdParty("a", fresh)}, stale, late, stale},
	{"stale and in error, and typed as stale", two[:1],
		list{from("a", inError("2", 999, "refused")), thirdParty("a", healthy("2", 999))}, failed, late, stale},
	{"stale, while the typed one is unhealthy", two[:1],
		list{from("a", healthy("2", valid+1)), thirdParty("a", unhealthy("2", 5, "sealed"))}, pluginUnhealthy, observed,
		keyUnhealthy},
	{"stale, as is the typed one, which is unhealthy", two[:1],
		list{from("a", healthy("2", valid+10)), thirdParty("a", unhealthy("2", valid+5, "sealed"))}, stale, late, stale},
	{"unreadable, while the typed one is healthy", two[:1], list{unreadable("a"), thirdParty("a", fresh)}, garbage,
		"False ReportUnreadable", garbage},
	{"unreadable, while the typed one is unhealthy", two[:1],
		list{unreadable("a"), thirdParty("a", unhealthy("2", 5, "sealed"))}, pluginUnhealthy, "False ReportUnreadable",
		garbage},
	{"one key of two is stale, and typed as unhealthy", []Node{on("a", "2", "1")},
		list{from("a", fresh, healthy("1", valid+1)), thirdParty("a", inError("1", 5, "refused"))}, failed, observed, agreed},
	{"of the pod before, beside a typed one of this", []Node{attended(since(60, on("a", "2")), "u1")},
		list{by("u0", from("a", inError("2", 5, "refused"))), thirdParty("a", fresh)}, fine, observed, agreed},

	// While the operator is Unmanaged.
	{"unattended, and not reported", []Node{on("a", "2"), unattended(on("b", "2"))}, ok[:1], fine, unmanaged, noReport},
	{"unattended, and stale", []Node{on("a", "2"), unattended(on("b", "2"))}, but(ok[:1], from("b", healthy("2", 999))),
		fine, unmanaged, stale},
	{"unattended, and typed as unhealthy", []Node{on("a", "2"), unattended(on("b", "2"))},
		but(ok[:1], thirdParty("b", unhealthy("2", 5, "sealed"))), pluginUnhealthy, observed, keyUnhealthy},

	// Unreadable reports, and nodes that do not count.
	{"an unreadable message", two, but(ok, unreadable("b")), garbage, "False ReportUnreadable", garbage},
	{"an unreadable message, keys not known", []Node{on("a")}, list{unreadable("a")}, garbage, "False ReportUnreadable",
		noKey},
	{"a node without a pod is unhealthy", two, but(ok, from("gone", inError("2", 5, "refused"))), fine, observed, agreed},
	{"a node without a pod names another id", two, but(ok, from("gone", naming("k-8", fresh))), fine, observed, agreed},
	{"a node without a pod is unreadable, another stale", two,
		but(ok, unreadable("gone"), from("went", healthy("2", 999))), fine, observed, agreed},
	{"only a node without a pod reports", nil, ok[:1], "False NoPods", "False NoPods", noKey},
	{"an old file: a key that its pod does not have is in error", two, b(fresh, inError("1", 5, "no such socket")), fine,
		others, agreed},
	{"an old file: nothing that its pod has, and in error", two, b(inError("1", 5, "no such socket")), awaiting, others,
		noReport},
	{"an old file, stale", two, b(fresh, healthy("1", 999)), fine, others, agreed},
	{"keys not known: every entry counts", []Node{on("a")}, list{from("a", fresh, inError("1", 5, "refused"))}, failed,
		observed, noKey},
	{"keys not known, nothing reported", []Node{on("a")}, nil, awaiting, missing, noKey},
	{"keys not known, no plugin reported", []Node{on("a")}, list{from("a")}, awaiting, missing, noKey},

	// Severity.
	{"unhealthy outweighs stale", two,
		list{from("a", inError("2", 5, "refused")), from("b", healthy("2", 999)), from("c", fresh)}, failed, late,
		"Unknown PluginUnhealthy"},
	{"unhealthy outweighs missing", two, list{from("a", unhealthy("2", 5, "sealed"))}, pluginUnhealthy, missing,
		"Unknown PluginUnhealthy"},
	{"stale outweighs missing", two, list{from("a", healthy("2", 999))}, stale, late, stale},
	{"error outweighs unhealthy", two,
		list{from("a", unhealthy("2", 5, "sealed")), from("b", inError("2", 5, "refused")), from("c", fresh)}, failed,
		observed, keyUnhealthy},
	{"a container that cannot start outweighs error",
		[]Node{on("a", "2"), broken(on("b", "2"), "kms-2", "CrashLoopBackOff")},
		list{from("a", inError("2", 5, "refused")), from("b", inError("2", 5, "refused"))}, stopped, observed, keyUnhealthy},
	{"different KEK IDs outweigh missing reports", two, list{from("a", fresh), from("b", naming("k-8", fresh))}, awaiting,
		missing, differ},
	{"KEK IDs of unhealthy and stale nodes are not compared", two,
		list{from("a", fresh), from("b", naming("k-8", unhealthy("2", 5, "x"))), from("c", naming("k-9", healthy("2", 999)))},
		pluginUnhealthy, late, keyUnhealthy},

	// The write key, if it is not known from the configuration.
	{"the pods' own plugin sets outweigh the order of a report", two[:2],
		list{from("a", fresh, healthy("1", 5)), from("b", healthy("1", 5), fresh)}, fine, others, agreed},
	{"no key id", two[:1], list{from("a", naming("", fresh))}, fine, observed, keyUnhealthy},
	{"first enablement: 1 of 3 has a plugin", []Node{on("a", "2"), noKMS("b"), noKMS("c")}, ok[:1], fine, observed,
		notYet},
	{"first enablement: no node has a plugin", []Node{noKMS("a"), noKMS("b")}, nil, "False NoPlugins", "True NoPlugins",
		noKey},
	{"first enablement, and the plugin is unhealthy", []Node{on("a", "2"), noKMS("b")},
		list{from("a", unhealthy("2", 5, "x"))}, pluginUnhealthy, observed, notYet},
	{"a node without a plugin may report what it had", []Node{on("a", "2"), noKMS("b")},
		list{from("a", fresh), from("b", inError("2", 5, "x"))}, fine, observed, notYet},
	{"a node without a plugin may have a reporter that cannot start", []Node{on("a", "2"), reporterBroken(noKMS("b"))},
		ok[:1], fine, observed, notYet},
	{"a node whose plugin only reads", []Node{on("a", "2"), reading(on("b", "2"))}, ok[:2], fine, observed, notYet},
	{"a migration: old pods and new", []Node{on("a", "2", "1"), on("b", "1"), on("c", "1")},
		but(old, from("a", fresh, healthy("1", 5))), fine, observed, noKey},
}

func TestVerdicts(t *testing.T) {
	for _, tt := range verdicts {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: tt.nodes, Reports: tt.reports})
			for _, one := range []struct{ kind, want string }{{contract.PluginsDegraded, tt.degraded},
				{contract.HealthReporting, tt.observed}, {contract.WriteKeyAgreed, tt.agreed}} {
				c := got.Conditions[one.kind]
				if have := c.Status + " " + c.Reason; have != one.want {
					t.Errorf("%s is %s, want %s: %s", one.kind, have, one.want, c.Message)
				}
				if c.Message == "" || strings.TrimSpace(c.Message) != c.Message {
					t.Errorf("%s has the message %q", one.kind, c.Message)
				}
			}
		})
	}
}

// A report counts as silent only if the resource was read after the report was due. Reports about plugins or nodes that
// do not exist are not awaited.
func TestNoReportIsSilentBeforeThatWasSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		shown       time.Time
		reports     list
		degraded    string
		unconfirmed bool
	}{
		"seen before it was due": {ago(2), b(healthy("2", valid+1)), fine, true},
		"seen since":             {ago(0), b(healthy("2", valid+1)), stale, false},
		"seen, due for long":     {ago(5), b(healthy("2", valid+9)), stale, false},
		"it is not due":          {ago(50), ok, fine, false},
		"unhealthy":              {ago(2), b(unhealthy("2", valid+1, "sealed")), pluginUnhealthy, true},
		"of another key":         {ago(50), b(healthy("2", 5), healthy("1", 9*valid)), fine, false},
		"of another node":        {ago(50), append(slices.Clone(ok), from("x", healthy("2", 9*valid))), fine, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Wall: now, Shown: tt.shown, Agreement: agreement2, Nodes: two, Reports: tt.reports})
			c := got.Conditions[contract.PluginsDegraded]
			if have := c.Status + " " + c.Reason; have != tt.degraded || got.Unconfirmed != tt.unconfirmed {
				t.Errorf("%s, unconfirmed %v, want %s, %v", have, got.Unconfirmed, tt.degraded, tt.unconfirmed)
			}
		})
	}
}

func TestWriteKeyDuringAMigration(t *testing.T) {
	nodes := []Node{on("a", "2", "1"), on("b", "1"), noKMS("c")}
	reports := list{from("a", healthy("2", 5), healthy("1", 5)), from("b", healthy("1", 5))}
	const writes = "not in use yet: the API server writes "
	const other, none = writes + "with key ", writes + "without KMS"
	for key, want := range map[string]string{
		"":  noKey + ": the key that encrypts new data is not known",
		"1": notYet + ": key 1 on node a: " + other + "2\nkey 1 on node c: " + none,
		"2": notYet + ": key 2 on node b: " + other + "1\nkey 2 on node c: " + none,
	} {
		c := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: nodes, Reports: reports, WriteKey: key})
		got := c.Conditions[contract.WriteKeyAgreed]
		if have := got.Status + " " + got.Reason + ": " + got.Message; have != want {
			t.Errorf("key %q: %s, want %s", key, have, want)
		}
	}
}

// While KMS is turned off, API servers write with the key until each has the new configuration. After that an unhealthy
// plugin does not prevent writes.
func TestWithoutAWriteKeyNothingIsAgreed(t *testing.T) {
	for name, reports := range map[string]list{"healthy": each(healthy("2", 5)),
		"unhealthy": each(inError("2", 5, "refused")), "missing": nil} {
		in := Input{Now: now, Wall: now, Agreement: agreement2, Nodes: abc("2"), Reports: reports, NoWriteKey: true}
		const text = "False WriteKeyNotDeployed: key 2 on nodes a, b, c: still in use: the API server writes with it"
		if c := Evaluate(&in).Conditions[contract.WriteKeyAgreed]; c.Status+" "+c.Reason+": "+c.Message != text {
			t.Errorf("%s: before a restart: %+v", name, c)
		}
		for i := range in.Nodes {
			in.Nodes[i] = reading(in.Nodes[i])
		}
		got := Evaluate(&in)
		if c := got.Conditions[contract.WriteKeyAgreed]; c.Status+" "+c.Reason != "Unknown NoWriteKey" || c.Message == "" {
			t.Errorf("%s: %+v", name, c)
		}
		if c := got.Conditions[contract.PluginsDegraded]; (c.Status == operatorstatus.True) != (name == "unhealthy") {
			t.Errorf("%s: %+v", name, c)
		}
		in.Alone = true
		if c := Evaluate(&in).Conditions[contract.WriteKeyAgreed]; c.Status+" "+c.Reason != noKey {
			t.Errorf("%s: outside of pods: %+v", name, c)
		}
	}
}

func TestAgreementIsJSONInTheMessage(t *testing.T) {
	since := agreement2
	since.KEKID = `k"7`
	got := Evaluate(&Input{Now: now, Agreement: since, Nodes: abc("2"), Reports: each(naming(`k"7`, healthy("2", 5)))})
	if want := `{"keyID":"2","kekID":"k\"7","since":"2026-05-08T11:43:20Z"}`; got.Conditions[contract.WriteKeyAgreed].Message != want {
		t.Errorf("got %s, want %s", got.Conditions[contract.WriteKeyAgreed].Message, want)
	}
}

// Whoever writes a report chooses its node and its keys.
func TestRowsOfOtherNodesAndPluginsAreKnownAsSuch(t *testing.T) {
	got := Evaluate(&Input{Now: now, Wall: now, Nodes: []Node{probing(on("a", "2"), "1")},
		Others: []Node{on("deleted", "2")}, Reports: list{from("deleted", healthy("2", 5), healthy("4", 5)),
			from("a", healthy("2", 5), healthy("1", 5), healthy("3", 5)), from("other", healthy("2", 5)), unreadable("unknown")}})
	var unasked []string
	for _, r := range got.Rows {
		if r.Unasked {
			unasked = append(unasked, r.Node+" "+r.KeyID)
		}
	}
	if want := []string{"a 3", "deleted 4", "other 2", "unknown "}; !slices.Equal(unasked, want) {
		t.Errorf("%v, want %v", unasked, want)
	}
}

// Such a provider's health is unknown, so the verdict is neither healthy nor unhealthy.
func TestAProviderThatCannotBeProbedIsNotHealthy(t *testing.T) {
	notProbed := []Finding{{Reason: contract.ProviderNotProbed,
		Text: "provider old of secrets is not probed: it is v1"}}
	for _, tt := range []struct {
		name    string
		nodes   []Node
		reports []Report
		want    string
	}{
		{"beside healthy plugins", abc("2"), each(healthy("2", 5)), "Unknown ProviderNotProbed"},
		{"beside an unhealthy plugin", abc("2"), but(each(healthy("2", 5)), from("b", unhealthy("2", 5, "sealed"))),
			pluginUnhealthy},
		{"without a plugin", abc(), nil, "Unknown ProviderNotProbed"},
		{"without a pod", nil, nil, "Unknown ProviderNotProbed"},
	} {
		got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: tt.nodes, Reports: tt.reports, NotObserved: notProbed})
		if c := got.Conditions[contract.PluginsDegraded]; c.Status+" "+c.Reason != tt.want ||
			!strings.Contains(c.Message, "provider old") {
			t.Errorf("%s: %+v, want %s", tt.name, c, tt.want)
		}
	}
}
