package rollup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Common results.
const (
	fine            = "False AsExpected" // KMSPluginsDegraded
	awaiting        = "False Progressing"
	stale           = "Unknown ReporterStale"
	failed          = "True PluginError"
	pluginUnhealthy = "True PluginUnhealthy"
	stopped         = "True PluginNotRunning"
	garbage         = "Unknown ReportUnreadable"
	observed        = "True AsExpected" // KMSHealthReporting
	late            = "False ReporterStale"
	missing         = "Unknown Progressing" // a first report may still come
	notRunning      = "False ReporterNotRunning"
	unmanaged       = "Unknown Unmanaged"
	agreed          = "True AsExpected" // KMSWriteKeyAgreed
	notYet          = "False WriteKeyNotDeployed"
	noReport        = "Unknown ReportsMissing"
	keyUnhealthy    = "Unknown PluginUnhealthy"
	differ          = "False KeysDiffer"
	noKey           = "Unknown WriteKeyUnknown"
)

// want are the conditions: KMSPluginsDegraded, KMSHealthReporting and KMSWriteKeyAgreed.
type want [3]string

var (
	allFine     = want{fine, observed, agreed}
	isAwaited   = want{awaiting, missing, noReport}
	isSilent    = want{stale, late, stale}
	isExcused   = want{fine, stale, stale} // a silence
	isUnhealthy = want{pluginUnhealthy, observed, keyUnhealthy}
	isFailed    = want{failed, observed, keyUnhealthy}
	isRolledOut = want{fine, observed, notYet} // the write key
)

var one, two, ok = abc("2")[:1], abc("2"), each(healthy("2", 5))
var old, fresh = each(healthy("1", 5)), healthy("2", 5)

// a returns a report of a. b returns a report of b, with healthy ones of the other nodes.
func a(entries ...Entry) list { return list{from("a", entries...)} }
func b(entries ...Entry) list { return but(ok, from("b", entries...)) }

var verdicts = []struct {
	name    string
	nodes   []Node
	reports []Report
	want    want
}{
	// Each state of a plugin, a reporter and a node.
	{"all fresh and healthy", two, ok, allFine},
	{"all healthy on two keys", abc("2", "1"), each(fresh, healthy("1", 5)), allFine},
	{"one unhealthy", two, b(unhealthy("2", 5, "sealed")), isUnhealthy},
	{"one error", two, b(inError("2", 5, "refused")), isFailed},
	{"a container cannot start: image", bIs(broken("kms-2", "ImagePullBackOff")), ok[:1],
		want{stopped, missing, noReport}},
	{"a reporter cannot start", bIs(reporterBroken)[:2], ok[:1], want{awaiting, notRunning, noReport}},
	{"a reporter cannot start any more", bIs(reporterBroken)[:2], but(ok[:2], from("b", healthy("2", 999))),
		want{stale, notRunning, "Unknown ReporterStale"}},
	{"a reporter crashes, and reports all the same", bIs(reporterBroken), ok, want{fine, notRunning, agreed}},
	{"an unhealthy plugin outweighs a reporter that cannot start", bIs(reporterBroken)[:2], a(unhealthy("2", 5, "sealed")),
		want{pluginUnhealthy, notRunning, keyUnhealthy}},
	{"a container cannot start: crash loop, others healthy", bIs(broken("kms-2", "CrashLoopBackOff: exit code 1")), ok,
		want{stopped, observed, agreed}},
	{"nothing observed yet", two, nil, isAwaited},
	{"no node, no report", nil, nil, want{"False NoPods", "False NoPods", noReport}},
	{"a reporter stopped, its Node is Ready", two, b(healthy("2", valid+1)), isSilent},
	{"a reporter stopped, its Node is not Ready, last report healthy", bIs(down), b(healthy("2", 999)), isExcused},
	{"a reporter stopped, its Node is not Ready, last report unhealthy", bIs(down), b(unhealthy("2", 999, "sealed")),
		want{pluginUnhealthy, stale, stale}},
	{"one is missing", two, ok[:2], isAwaited},
	{"one reports on another key", two, b(healthy("1", 5)), isAwaited},
	{"one does not report on a key that it should", abc("2", "1"), but(each(fresh, healthy("1", 5)), from("b", fresh)),
		want{awaiting, missing, agreed}},
	{"the write key's ids differ", two, b(naming("k-8", fresh)), want{fine, observed, differ}},
	{"another key's ids may differ", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", fresh, naming("k-9", healthy("1", 5)))), allFine},
	{"a node has no plugin", []Node{{Name: "a", Ready: true, Keys: []string{}}}, nil,
		want{"False NoPlugins", "True NoPlugins", notYet}},

	// Freshness.
	{"just not stale", two, each(healthy("2", valid)), allFine},
	{"all stale", two, each(healthy("2", valid+1)), isSilent},
	{"one key of two is stale", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", fresh, every(1, healthy("1", contract.StaleIntervals+1)))),
		want{stale, late, agreed}},
	{"the write key of two is stale", abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", every(1, healthy("2", contract.StaleIntervals+1)), healthy("1", 5))),
		isSilent},
	{"stale, and unhealthy for hours before", two, b(unhealthy("2", 9999, "sealed")), want{pluginUnhealthy, late, stale}},
	{"an interval of an hour", two, each(every(3600, healthy("2", contract.StaleIntervals*3600-1))), allFine},

	// Missing reports that are excused, and those that are not.
	{"replaced, last report healthy", bIs(renewed(179)), b(healthy("2", 300)), isAwaited},
	{"QuietPeriod is over", bIs(renewed(180)), b(every(1, healthy("2", 170))), isSilent},
	{"not Ready, the last report of the previous pod does not count", bIs(renewed(600), down),
		b(unhealthy("2", 601, "sealed")), isAwaited},
	{"not Ready, but it reports unhealthy", bIs(down), b(unhealthy("2", 5, "sealed")), isUnhealthy},
	{"replaced, but it reports unhealthy", bIs(renewed(30)), b(unhealthy("2", 5, "sealed")), isUnhealthy},
	{"replaced, a recent report of the previous pod does not count", bIs(renewed(30)), b(inError("2", 31, "refused")),
		isAwaited},
	{"replaced, the first report of this pod counts", bIs(renewed(30)), b(inError("2", 30, "refused")), isFailed},
	{"replaced, and unreadable", bIs(renewed(30)), but(ok, unreadable("b")), want{fine, garbage, garbage}},
	{"not Ready for half an hour, last report healthy", bIs(longDown), b(healthy("2", 9999)), isSilent},
	{"not Ready for half an hour, and it has not reported", bIs(longDown, overdue), ok[:1],
		want{"Unknown ReportsMissing", "False ReportsMissing", noReport}},
	{"no socket, and then no reports, its Node is down for half an hour", bIs(longDown), b(socketless(9999)),
		isSilent},
	{"not Ready, and unreadable", bIs(down), but(ok, unreadable("b")), want{fine, garbage, garbage}},
	{"being replaced, last report healthy", bIs(replacing(60)), b(healthy("2", 300)), isExcused},
	{"being replaced, silent for longer than any excuse", bIs(replacing(60)), b(healthy("2", valid+301)), isSilent},
	{"not Ready, and it has not reported yet", bIs(down)[:2], ok[:1], isAwaited},
	{"all not Ready", []Node{with(on("a", "2"), down), with(on("b", "2"), down)}, each(healthy("2", 500))[:2], isExcused},

	// A missing socket: the plugin has ended, or has not started.
	{"no socket", two, b(socketless(5)), isFailed},
	{"no socket, its API server starts", bIs(renewed(5)), b(socketless(1)), want{fine, observed, keyUnhealthy}},
	{"no socket, its API server started", bIs(renewed(180)), b(socketless(1)), isFailed},
	{"no socket, its Node shuts down", bIs(down), b(socketless(1)), want{fine, observed, keyUnhealthy}},
	{"no socket, and then no reports, its Node is down", bIs(down), b(socketless(999)), isExcused},
	{"no socket, the plugin was removed", []Node{on("a", "2"), noKMS("b")}, but(ok[:1], from("b", socketless(1))),
		isRolledOut},
	{"no socket of one key while another's plugin is unhealthy", []Node{with(on("a", "2", "1"), renewed(5))},
		a(socketless(1), unhealthy("1", 1, "x")), isUnhealthy},

	// Who wrote a report.
	{"by the companion beside its pod", aIs(attended("u1")), list{by("u1", from("a", fresh))}, allFine},
	{"by the companion beside the pod before", aIs(attended("u1")), list{by("u0", from("a", fresh))}, isAwaited},
	{"by the companion, its node's clock 4 seconds behind", aIs(renewed(3), attended("u1")),
		list{by("u1", from("a", healthy("2", 7)))}, allFine},
	{"by an agent, also before the API server was restarted", aIs(renewed(5), attended("agent")),
		list{by("agent", from("a", healthy("2", 20)))}, allFine},
	{"by an agent, unhealthy before the API server was restarted", aIs(since(5), attended("agent")),
		list{by("agent", from("a", unhealthy("2", 20, "sealed")))}, isUnhealthy},
	{"by one that was set up by hand, since the pod's start", aIs(since(5), attended()), a(fresh), allFine},
	{"by one that was set up by hand, before the pod's start", aIs(since(4), attended("u1")), a(fresh), isAwaited},

	// A plugin is its key ID and its socket.
	{"about its socket", one, a(at("/run/kms-2.sock", fresh)), allFine},
	{"about a socket of before", one, a(at("/old/kms-2.sock", fresh)), isAwaited},
	{"about a folder that its API server does not mount", aIs(unmounted), list{by("u", from("a", fresh))}, isAwaited},
	{"about a socket, where its plugin's is not known", []Node{on("a", "1")}, a(at("/x", healthy("1", 5))),
		isRolledOut},

	// Several pods of the API server on a node.
	{"two pods for a moment", aIs(shared(1)), ok[:1], want{fine, observed, "Unknown SeveralPods"}},
	{"two pods for long", aIs(shared(0)), ok[:1], want{fine, "False SeveralPods", "Unknown SeveralPods"}},

	// An API server that does not encrypt, or not everything with one key.
	{"no flag", bIs(unencrypted)[:2], ok[:2],
		want{"True EncryptionNotConfigured", observed, "False EncryptionNotConfigured"}},
	{"another key for some resources", bIs(mixed)[:2], ok[:2], want{fine, observed, "False WriteKeyOfSome"}},

	// What an earlier process saw.
	{"standing, and healthy", two, each(standing(fresh)), want{awaiting, missing, agreed}},
	{"standing, and unhealthy", two, b(standing(unhealthy("2", 5, "sealed"))), isUnhealthy},
	{"standing for too long", two, b(standing(healthy("2", valid+61))), isSilent},

	// A plugin that did not answer in time.
	{"a time-out", two, b(timedOut(5, 35)), want{failed, observed, agreed}},
	{"time-outs for as long as an entry is valid", two, b(timedOut(5, valid+1)), isFailed},

	// Typed reports, of OpenShift's own reporter.
	{"typed alone", two, list{thirdParty("a", fresh), thirdParty("b", fresh), thirdParty("c", fresh)}, allFine},
	{"typed has no interval: at the last instant", one, list{thirdParty("a", every(1, healthy("2", valid)))}, allFine},
	{"typed has no interval: stale after it", one, list{thirdParty("a", every(3600, healthy("2", valid+1)))}, isSilent},
	{"typed, unhealthy", one, list{thirdParty("a", unhealthy("2", 5, "sealed"))}, isUnhealthy},
	{"typed, of the pod before", aIs(since(4)), list{thirdParty("a", fresh)}, isAwaited},
	{"a condition on some nodes, typed on others", two, list{from("a", fresh), thirdParty("b", fresh), from("c", fresh)},
		allFine},

	// With a condition for the same pod they do not count.
	{"unhealthy, while a newer typed one is healthy", one,
		list{from("a", inError("2", 20, "refused")), thirdParty("a", fresh)}, isFailed},
	{"healthy, while a newer typed one is in error", one,
		list{from("a", healthy("2", 20)), thirdParty("a", inError("2", 5, "refused"))}, allFine},
	{"a key that is typed only is not reported", abc("2", "1")[:1],
		list{from("a", fresh), thirdParty("a", inError("1", 6, "x"))}, want{awaiting, missing, agreed}},
	{"stale, while the typed one is healthy", one, list{from("a", healthy("2", valid+1)), thirdParty("a", fresh)},
		isSilent},
	{"stale and in error, while the typed one is healthy", one,
		list{from("a", inError("2", 999, "refused")), thirdParty("a", fresh)}, want{failed, late, stale}},
	{"stale, while the typed one is unhealthy", one,
		list{from("a", healthy("2", valid+1)), thirdParty("a", unhealthy("2", 5, "sealed"))}, isSilent},
	{"unreadable, while the typed one is healthy", one, list{unreadable("a"), thirdParty("a", fresh)},
		want{garbage, "False ReportUnreadable", garbage}},
	{"of the pod before, beside a typed one of this", aIs(since(60), attended("u1")),
		list{by("u0", from("a", inError("2", 5, "refused"))), thirdParty("a", fresh)}, allFine},

	// While the operator is Unmanaged.
	{"unattended, and not reported", bIs(unattended)[:2], ok[:1], want{fine, unmanaged, noReport}},
	{"unattended, and stale", bIs(unattended)[:2], but(ok[:1], from("b", healthy("2", 999))),
		want{fine, unmanaged, stale}},
	{"unattended, and typed as unhealthy", bIs(unattended)[:2], but(ok[:1], thirdParty("b", unhealthy("2", 5, "sealed"))),
		isUnhealthy},

	// Unreadable reports, and nodes that do not count.
	{"an unreadable message", two, but(ok, unreadable("b")), want{garbage, "False ReportUnreadable", garbage}},
	{"an unreadable message, keys not known", []Node{on("a")}, list{unreadable("a")},
		want{garbage, "False ReportUnreadable", noKey}},
	{"nodes without a pod", two, but(ok, from("d", inError("2", 5, "refused")), from("e", naming("k-8", fresh)),
		unreadable("f"), from("g", healthy("2", 999))), allFine},
	{"only a node without a pod reports", nil, ok[:1], want{"False NoPods", "False NoPods", noReport}},
	{"an old file: a key that its pod does not have is in error", two, b(fresh, inError("1", 5, "no such socket")),
		allFine},
	{"an old file: nothing that its pod has, and in error", two, b(inError("1", 5, "no such socket")), isAwaited},
	{"keys not known: every entry counts", []Node{on("a")}, a(fresh, inError("1", 5, "refused")),
		want{failed, observed, noKey}},
	{"keys not known, nothing reported", []Node{on("a")}, nil, want{awaiting, missing, noKey}},
	{"keys not known, no plugin reported", []Node{on("a")}, list{from("a")}, want{awaiting, missing, noKey}},

	// Severity.
	{"unhealthy outweighs stale", two, list{from("a", inError("2", 5, "refused")), from("b", healthy("2", 999)),
		from("c", fresh)}, want{failed, late, "Unknown PluginUnhealthy"}},
	{"stale outweighs missing", two, a(healthy("2", 999)), isSilent},
	{"error outweighs unhealthy", two, list{from("a", unhealthy("2", 5, "sealed")), from("b", inError("2", 5, "refused")),
		from("c", fresh)}, isFailed},
	{"a container that cannot start outweighs error", bIs(broken("kms-2", "CrashLoopBackOff"))[:2],
		list{from("a", inError("2", 5, "refused")), from("b", inError("2", 5, "refused"))},
		want{stopped, observed, keyUnhealthy}},
	{"different KEK IDs outweigh missing reports", two, list{from("a", fresh), from("b", naming("k-8", fresh))},
		want{awaiting, missing, differ}},
	{"KEK IDs of unhealthy and stale nodes are not compared", two,
		list{from("a", fresh), from("b", naming("k-8", unhealthy("2", 5, "x"))), from("c", naming("k-9", healthy("2", 999)))},
		want{pluginUnhealthy, late, keyUnhealthy}},

	// The write key.
	{"the pods' own plugin sets outweigh the order of a report", two[:2],
		list{from("a", fresh, healthy("1", 5)), from("b", healthy("1", 5), fresh)}, allFine},
	{"no key id", one, a(naming("", fresh)), want{fine, observed, keyUnhealthy}},
	{"first enablement: 1 of 3 has a plugin", []Node{on("a", "2"), noKMS("b"), noKMS("c")}, ok[:1], isRolledOut},
	{"first enablement: no node has a plugin", []Node{noKMS("a"), noKMS("b")}, nil,
		want{"False NoPlugins", "True NoPlugins", notYet}},
	{"first enablement, and the plugin is unhealthy", []Node{on("a", "2"), noKMS("b")}, a(unhealthy("2", 5, "x")),
		want{pluginUnhealthy, observed, notYet}},
	{"a node without a plugin may report what it had", []Node{on("a", "2"), noKMS("b")},
		list{from("a", fresh), from("b", inError("2", 5, "x"))}, isRolledOut},
	{"a node without a plugin may have a reporter that cannot start",
		[]Node{on("a", "2"), with(noKMS("b"), reporterBroken)}, ok[:1], isRolledOut},
	{"a node whose plugin only reads", bIs(reading)[:2], ok[:2], isRolledOut},
	{"a migration: old pods and new", []Node{on("a", "2", "1"), on("b", "1"), on("c", "1")},
		but(old, from("a", fresh, healthy("1", 5))), isRolledOut},
}

func TestVerdicts(t *testing.T) {
	for _, tt := range verdicts {
		t.Run(tt.name, func(t *testing.T) {
			got := Evaluate(&Input{Now: now, Wall: now, WriteKey: "2", Agreement: agreement2, Nodes: tt.nodes,
				Reports: tt.reports})
			for i, kind := range Types {
				message := got.Conditions[kind].Message
				if got.is(kind) != tt.want[i] || message == "" || strings.TrimSpace(message) != message {
					t.Errorf("%s is %s, want %s: %q", kind, got.is(kind), tt.want[i], message)
				}
			}
		})
	}
}

// A report counts as silent only if the resource was read after the report was due. Reports about plugins or nodes that
// do not exist are not awaited.
func TestNoReportIsSilentBeforeThatWasSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		behind   int // seconds
		reports  list
		degraded string
	}{
		"seen before it was due": {2, b(healthy("2", valid+1)), fine},
		"seen since":             {0, b(healthy("2", valid+1)), stale},
		"seen, due for long":     {5, b(healthy("2", valid+9)), stale},
		"it is not due":          {50, ok, fine},
		"unhealthy":              {2, b(unhealthy("2", valid+1, "sealed")), pluginUnhealthy},
		"of another key":         {50, b(healthy("2", 5), healthy("1", 9*valid)), fine},
		"of another node":        {50, append(slices.Clone(ok), from("x", healthy("2", 9*valid))), fine},
	} {
		t.Run(name, func(t *testing.T) {
			behind := time.Duration(tt.behind) * time.Second
			got := Evaluate(&Input{Now: now, Wall: now, Behind: behind, Agreement: agreement2, Nodes: two, Reports: tt.reports})
			if got.degraded() != tt.degraded {
				t.Errorf("%s, want %s", got.degraded(), tt.degraded)
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
		got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: nodes, Reports: reports, WriteKey: key})
		if have := got.agreed() + ": " + got.Conditions[contract.WriteKeyAgreed].Message; have != want {
			t.Errorf("key %q: %s, want %s", key, have, want)
		}
	}
}

// While KMS is turned off, API servers write with the key until each has the new configuration. After that an unhealthy
// plugin does not prevent writes.
func TestWithoutAWriteKeyNothingIsAgreed(t *testing.T) {
	for want, reports := range map[string]list{fine: ok, failed: each(inError("2", 5, "refused")), awaiting: nil} {
		in := Input{Now: now, Wall: now, Agreement: agreement2, Nodes: abc("2"), Reports: reports, NoWriteKey: true}
		const text = "key 2 on nodes a, b, c: still in use: the API server writes with it"
		if got := Evaluate(&in); got.agreed() != notYet || got.Conditions[contract.WriteKeyAgreed].Message != text {
			t.Errorf("%s: before a restart: %+v", want, got.Conditions)
		}
		for i := range in.Nodes {
			reading(&in.Nodes[i])
		}
		if got := Evaluate(&in); got.agreed() != "Unknown NoWriteKey" || got.degraded() != want {
			t.Errorf("%s: %+v", want, got.Conditions)
		}
		in.Alone = true
		if got := Evaluate(&in).agreed(); got != noKey {
			t.Errorf("%s: outside of pods: %s", want, got)
		}
	}
}

func TestAgreementIsJSONInTheMessage(t *testing.T) {
	since := agreement2
	since.KEKID = `k"7`
	got := Evaluate(&Input{Now: now, WriteKey: "2", Agreement: since, Nodes: two, Reports: each(naming(`k"7`, fresh))})
	const want = `{"keyID":"2","kekID":"k\"7","since":"2026-05-08T11:43:20Z"}`
	if c := got.Conditions[contract.WriteKeyAgreed]; c.Message != want {
		t.Errorf("got %s, want %s", c.Message, want)
	}
}

// Whoever writes a report chooses its node and its keys.
func TestRowsAreOfPluginsOfThePod(t *testing.T) {
	in := Input{Now: now, Wall: now, Nodes: []Node{on("a", "2"), noKMS("b")},
		Reports: list{from("a", healthy("2", 5), healthy("1", 5)), from("b", healthy("2", 5))}}
	if rows := Evaluate(&in).Rows; len(rows) != 1 || rows[0].Node != "a" || rows[0].KeyID != "2" {
		t.Errorf("%+v", rows)
	}
	for node, want := range map[string]bool{"a": true, "b": false, "other": false} {
		if got := in.Expects(node); got != want {
			t.Errorf("node %s is expected: %t", node, got)
		}
	}
}

// Such a provider's health is unknown, so the verdict is neither healthy nor unhealthy.
func TestAProviderThatCannotBeProbedIsNotHealthy(t *testing.T) {
	notProbed := []Finding{{Reason: contract.ProviderNotProbed, Text: "provider old of secrets is not probed: it is v1"}}
	for name, tt := range map[string]struct {
		nodes   []Node
		reports []Report
		want    string
	}{
		"beside healthy plugins":     {two, ok, "Unknown ProviderNotProbed"},
		"beside an unhealthy plugin": {two, b(unhealthy("2", 5, "sealed")), pluginUnhealthy},
		"without a plugin":           {abc(), nil, "Unknown ProviderNotProbed"},
		"without a pod":              {nil, nil, "Unknown ProviderNotProbed"},
	} {
		got := Evaluate(&Input{Now: now, Wall: now, Nodes: tt.nodes, Reports: tt.reports, NotObserved: notProbed})
		if message := got.Conditions[contract.PluginsDegraded].Message; got.degraded() != tt.want ||
			!strings.Contains(message, "provider old") {
			t.Errorf("%s: %s: %s, want %s", name, got.degraded(), message, tt.want)
		}
	}
}

// After a restart, a KMSPluginsDegraded that was True stays so while a first report is awaited: it may be the unhealthy
// plugin's. One of a pod that is newer than the process is not what an earlier process found.
func TestStandingTrueAwaitsReportsOfPodsFromBefore(t *testing.T) {
	before := Evaluate(&Input{Now: ago(60), Nodes: abc("2"), Reports: each(unhealthy("2", 65, "sealed"))}).Conditions
	for want, c := range map[string]Node{pluginUnhealthy: on("c", "2"), awaiting: with(on("c", "2"), since(5))} {
		of := Input{Now: now, Nodes: append(abc("2")[:2], c), Reports: ok[:2], Previous: before, Stood: in(10)}
		got := Evaluate(&of)
		if got.degraded() != want {
			t.Errorf("%s, want %s", got.degraded(), want)
		}
		if want == pluginUnhealthy && !got.Deadline.Equal(of.Stood) {
			t.Errorf("evaluated again at %s, want %s", got.Deadline, of.Stood)
		}
	}
}
