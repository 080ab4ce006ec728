package rollup

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
)

// lines joins lines to a message.
func lines(all ...string) string { return strings.Join(all, "\n") }

// fleet returns n nodes named n00, n01, …, and their reports.
func fleet(n int, entry func(i int) Entry) (nodes []Node, reports []Report) {
	for i := range n {
		name := fmt.Sprintf("n%02d", i)
		nodes = append(nodes, on(name, "2"))
		reports = append(reports, from(name, entry(i)))
	}
	return nodes, reports
}

const isDegraded, isReporting, isAgreed = contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed
const excused = "every plugin is healthy on 1 of 2 nodes; the others are being replaced, are not Ready, " +
	"had no API server to write to, or have no reporter"
const noneReports = "every plugin is healthy on 0 of 3 nodes; the others are being replaced, are not Ready, " +
	"had no API server to write to, or have no reporter"

var okEntry = healthy("2", 5)
var same, sameReports = fleet(5, func(int) Entry { return unhealthy("2", 5, "vault is sealed") })
var six, sixSaid = fleet(7, func(i int) Entry {
	if i == 6 {
		return okEntry
	}
	return unhealthy("2", 5, "vault is sealed")
})
var many, manySaid = fleet(12, func(i int) Entry { return inError("2", 5, "attempt by "+string(rune('a'+i))) })

var messages = []struct {
	name    string
	kind    string
	nodes   []Node
	reports []Report
	want    string
}{
	{"healthy", isDegraded, abc("2"), each(okEntry), "every plugin is healthy on 3 of 3 nodes"},
	{"healthy, one node", isDegraded, abc("2")[:1], each(okEntry)[:1], "every plugin is healthy on 1 of 1 nodes"},
	{"healthy, one is stale and excused", isDegraded, []Node{on("a", "2"), down(on("b", "2"))},
		list{from("a", okEntry), from("b", healthy("2", 999))}, excused},
	{"healthy, one was unhealthy before it was replaced", isDegraded, []Node{on("a", "2"), renewed(30, on("b", "2"))},
		list{from("a", okEntry), from("b", inError("2", 31, "refused"))}, "node b: not reported yet"},
	{"healthy, one was healthy before it was replaced", isDegraded, []Node{on("a", "2"), renewed(30, on("b", "2"))},
		list{from("a", okEntry), from("b", healthy("2", 31))}, "node b: not reported yet"},
	{"healthy, one has no socket and is replaced", isDegraded, []Node{on("a", "2"), renewed(5, on("b", "2"))},
		list{from("a", okEntry), from("b", socketless("2", 1))}, excused},
	{"all are stale and excused", isDegraded,
		[]Node{down(on("a", "2")), replacing(60, on("b", "2")), attended(renewed(30, on("c", "2")), "u")},
		list{from("a", healthy("2", 300)), from("b", healthy("2", 300)), by("u", from("c", healthy("2", 300)))},
		noneReports},
	{"a key that is missing beside another is named", isDegraded, abc("2", "1"),
		but(each(okEntry, healthy("1", 5)), from("b", okEntry)), "key 1 on node b: not reported yet"},
	{"a node that is missing has no key named", isDegraded, abc("2", "1"), each(okEntry, healthy("1", 5))[:2],
		"node c: not reported yet"},
	{"details that differ are not joined", isDegraded, abc("2"),
		list{from("a", unhealthy("2", 5, "attempt 3")), from("b", unhealthy("2", 5, "attempt four")), from("c", okEntry)},
		lines("key 2 on node a: unhealthy: attempt 3", "key 2 on node b: unhealthy: attempt four")},
	{"one unhealthy, with a command", isDegraded, []Node{withLook(on("a", "2")), withLook(on("b", "2"))},
		list{from("a", unhealthy("2", 5, "err")), from("b", okEntry)},
		"key 2 on node a: unhealthy: err; see oc logs -n ns pod-a -c kms-2"},
	{"two with the same detail", isDegraded, abc("2"), but(each(unhealthy("2", 5, "sealed")), from("c", okEntry)),
		"key 2 on nodes a, b: unhealthy: sealed"},
	{"two with different details", isDegraded, abc("2"),
		list{from("a", unhealthy("2", 5, "sealed")), from("b", inError("2", 5, "refused")), from("c", okEntry)},
		lines("key 2 on node b: error: refused", "key 2 on node a: unhealthy: sealed")},
	{"several with the same detail: one line", isDegraded, same, sameReports,
		"key 2 on nodes n00, n01, n02, n03, n04: unhealthy: vault is sealed"},
	{"six nodes", isDegraded, six, sixSaid,
		"key 2 on nodes n00, n01, n02, n03, n04, n05: unhealthy: vault is sealed"},
	{"more than 8 lines", isDegraded, many, manySaid, lines(
		"key 2 on node n00: error: attempt by a", "key 2 on node n01: error: attempt by b",
		"key 2 on node n02: error: attempt by c",
		"key 2 on node n03: error: attempt by d", "key 2 on node n04: error: attempt by e",
		"key 2 on node n05: error: attempt by f",
		"key 2 on node n06: error: attempt by g", "key 2 on node n07: error: attempt by h",
		"and 4 more; see kubectl kms-health status")},
	{"8 lines", isDegraded, many[:8], manySaid[:8], lines(
		"key 2 on node n00: error: attempt by a", "key 2 on node n01: error: attempt by b",
		"key 2 on node n02: error: attempt by c",
		"key 2 on node n03: error: attempt by d", "key 2 on node n04: error: attempt by e",
		"key 2 on node n05: error: attempt by f",
		"key 2 on node n06: error: attempt by g", "key 2 on node n07: error: attempt by h")},
	{"two keys of a node", isDegraded, abc("2", "1")[:1], list{from("a", unhealthy("2", 5, "x"), inError("1", 5, "y"))},
		lines("key 1 on node a: error: y", "key 2 on node a: unhealthy: x")},
	{"a container cannot start", isDegraded,
		[]Node{broken(on("a", "2"), "kms-2", "CrashLoopBackOff: exit code 1"), on("b", "2")}, each(okEntry)[1:2],
		lines("node a: container kms-2 cannot start: CrashLoopBackOff: exit code 1; see oc describe pod -n kms pod-a",
			"node a: not reported yet")},
	{"stale after unhealthy", isDegraded, []Node{withLook(on("a", "2")), withLook(on("b", "2"))},
		list{from("a", healthy("2", 999)), from("b", unhealthy("2", 5, "x"))},
		lines("key 2 on node b: unhealthy: x; see oc logs -n ns pod-b -c kms-2",
			"node a: stopped reporting; see oc logs -n kms reporter-a")},
	{"both keys of a node are stale", isDegraded, abc("2", "1")[:1], list{from("a", healthy("2", 999), healthy("1", 998))},
		"node a: stopped reporting"},
	{"one key of a node is stale", isDegraded, abc("2", "1")[:1], list{from("a", okEntry, healthy("1", 998))},
		"key 1 on node a: no longer reported"},
	{"unreadable", isDegraded, abc("2")[:1], list{unreadable("a")},
		"node a: the report cannot be read: message is not a JSON array"},
	{"control characters are replaced", isDegraded, abc("2")[:1],
		list{from("a", unhealthy("2", 5, "\x1b[31mred\x00\nline\u2028\u202etwo"))},
		"key 2 on node a: unhealthy: [31mred  line  two"},
	{"a long detail is cut at a rune", isDegraded, abc("2")[:1],
		list{from("a", unhealthy("2", 5, "x"+strings.Repeat("é", 300)))},
		"key 2 on node a: unhealthy: x" + strings.Repeat("é", 126) + "…"},
	{"a keyID of unexpected characters", isDegraded, []Node{on("a")},
		list{from("a", unhealthy("2\n\x1b[2J"+strings.Repeat("9", 5000), 5, "x"))},
		"key 2  [2J" + strings.Repeat("9", 55) + "… on node a: unhealthy: x"},

	{"all report", isReporting, abc("2"), each(okEntry), "3 of 3 nodes report"},
	{"the one reports", isReporting, abc("2")[:1], each(okEntry)[:1], "1 of 1 nodes report"},
	{"nothing yet", isReporting, abc("2"), nil, "nodes a, b, c: not reported yet"},
	{"no pods", isReporting, nil, nil, "no pod of the API server runs on a node"},
	{"stale, and why", isReporting, []Node{on("a", "2"), down(on("b", "2")), replacing(60, withLook(on("c", "2")))},
		each(healthy("2", 300)),
		lines("node a: stopped reporting",
			"node b: stopped reporting; the Node is not Ready",
			"node c: stopped reporting; its API server is being replaced")},
	{"unreadable, and so not missing", isReporting, abc("2", "1")[:1], list{unreadable("a")},
		"node a: the report cannot be read: message is not a JSON array"},
	{"other plugins", isReporting, abc("2"), but(each(okEntry), from("b", okEntry, healthy("1", 5))),
		"node b: reports on keys that its pod does not have: 1"},
	{"fewer plugins, for now", isReporting, abc("2", "1")[:1], list{from("a", okEntry)},
		"key 1 on node a: not reported yet"},
	{"fewer plugins", isReporting, []Node{overdue(on("a", "2", "1"))}, list{from("a", okEntry)},
		"key 1 on node a: not reported yet"},
	{"many other plugins", isReporting, abc("2")[:1],
		list{from("a", okEntry, healthy("11", 5), healthy("12", 5), healthy("13", 5), healthy("14", 5), healthy("15", 5),
			healthy("16", 5))}, "node a: reports on keys that its pod does not have: 11, 12, 13, 14, 15, 16"},

	{"they differ", isAgreed, abc("2"), but(each(okEntry), from("b", naming("k-8", okEntry))),
		lines("key 2 on nodes a, c: KEK ID k-7", "key 2 on node b: KEK ID k-8")},
	{"they differ, and more", isAgreed, abc("2"),
		list{from("a", okEntry), from("b", naming("k-8", okEntry)), from("c", healthy("2", 999))},
		lines("key 2 on node a: KEK ID k-7", "key 2 on node b: KEK ID k-8", "key 2 on node c: no longer reported")},
	{"unhealthy and missing", isAgreed, abc("2"), list{from("a", okEntry), from("b", inError("2", 5, "x"))},
		lines("key 2 on node b: the plugin is not healthy, or reports no KEK ID", "key 2 on node c: not reported yet")},
	{"not in use yet", isAgreed, []Node{on("a", "2"), on("b", "1"), noKMS("c")},
		list{from("a", okEntry), from("b", healthy("1", 5))}, "the key that encrypts new data is not known"},
	{"not known", isAgreed, nil, nil, "the key that encrypts new data is not known"},
}

func TestMessages(t *testing.T) {
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Now: now, Nodes: tt.nodes, Reports: tt.reports}
			if diff := cmp.Diff(tt.want, Evaluate(&in).Conditions[tt.kind].Message); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Two KEK IDs that differ only at their ends, like versions of one key, must stay distinguishable.
func TestLongKeyIDsThatDifferAreDistinguishable(t *testing.T) {
	version := func(n int) string {
		return fmt.Sprintf("projects/my-project/locations/global/keyRings/openshift/cryptoKeys/etcd/cryptoKeyVersions/%d", n)
	}
	entry := healthy("2", 5)
	got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: abc("2"),
		Reports: but(each(naming(version(7), entry)),
			from("b", naming(version(8), entry)))}).Conditions[contract.WriteKeyAgreed]
	lines := strings.Split(got.Message, "\n")
	if got.Reason != contract.KeysDiffer || len(lines) != 2 {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
	if a, b := lines[0], lines[len(lines)-1]; !strings.HasSuffix(a, "/7") || !strings.HasSuffix(b, "/8") {
		t.Errorf("an admin cannot distinguish them:\n%s", got.Message)
	}
}

// maxMessage bounds a condition's message: maxLines lines and one more. A line has
// nodes' names of 256 bytes and one more (253), a key (64), twice five keys where
// plugins differ, 256 bytes of detail, and a command.
const maxMessage = 24 * 1024

func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("n", 250)
	var nodes []Node
	var reports []Report
	for i := range 60 {
		name := fmt.Sprintf("%s%03d", long, i)
		n := withLook(on(name, strings.Repeat("1", 250)))
		n.Look["2"] = strings.Repeat("l", 600)
		if i%3 == 0 {
			n.Keys = nil
		}
		nodes = append(nodes, n)
		var entries []Entry
		for k := range 200 {
			e := inError(fmt.Sprintf("%d%s", k, strings.Repeat("\x00", 200)), 5, strings.Repeat("<\x07", i+500))
			e.KEKID, e.Status = strings.Repeat("\"", 1024-i), []contract.Status{contract.Healthy, contract.Error,
				contract.Unhealthy}[(i+k)%3]
			entries = append(entries, e)
		}
		reports = append(reports, from(name, append(entries, healthy("2", 999))...))
	}
	for _, key := range []string{"", "2", reports[0].Entries[0].KeyID} {
		for _, c := range Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: nodes, Reports: reports, WriteKey: key}).Conditions {
			if len(c.Message) > maxMessage || strings.Count(c.Message, "\n") > maxLines {
				t.Errorf("%s is %d bytes in %d lines", c.Type, len(c.Message), strings.Count(c.Message, "\n")+1)
			}
			if at := strings.IndexFunc(c.Message, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); at >= 0 ||
				!utf8.ValidString(c.Message) {
				t.Errorf("%s has a control character at %d", c.Type, at)
			}
		}
	}
}
