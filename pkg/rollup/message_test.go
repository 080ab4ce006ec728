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

// fleet returns n nodes named n00, n01, …, whose plugins have different errors, their reports, and the message.
func fleet(n int) (nodes []Node, reports []Report, message string) {
	var all []string
	for i := range n {
		name, attempt := fmt.Sprintf("n%02d", i), "attempt by "+string(rune('a'+i))
		nodes = append(nodes, on(name, "2"))
		reports = append(reports, from(name, inError("2", 5, attempt)))
		all = append(all, "key 2 on node "+name+": error: "+attempt)
	}
	return nodes, reports, lines(all...)
}

const isDegraded, isReporting, isAgreed = contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed
const excused = ", except where a node is being replaced, is not Ready, or cannot report"

var eight, eightReports, eightLines = fleet(8)
var twelve, twelveReports, _ = fleet(12)

var messages = []struct {
	name    string
	kind    string
	nodes   []Node
	reports []Report
	want    string
}{
	{"healthy", isDegraded, two, ok, "every plugin is healthy on 3 nodes"},
	{"healthy, one is stale and excused", isDegraded, bIs(down)[:2], b(healthy("2", 999))[:2],
		"every plugin is healthy on 2 nodes" + excused},
	{"healthy, one was healthy before it was replaced", isDegraded, bIs(renewed(30))[:2], b(healthy("2", 31))[:2],
		"node b: not reported yet"},
	{"healthy, one has no socket and is replaced", isDegraded, bIs(renewed(5))[:2], b(socketless(1))[:2],
		"every plugin is healthy on 2 nodes" + excused},
	{"all are stale and excused", isDegraded,
		[]Node{with(on("a", "2"), down), with(on("b", "2"), replacing(60)), with(on("c", "2"), renewed(30), attended("u"))},
		list{from("a", healthy("2", 300)), from("b", healthy("2", 300)), by("u", from("c", healthy("2", 300)))},
		"every plugin is healthy on 3 nodes" + excused},
	{"a key that is missing beside another is named", isDegraded, abc("2", "1"),
		but(each(fresh, healthy("1", 5)), from("b", fresh)), "key 1 on node b: not reported yet"},
	{"a node that is missing has no key named", isDegraded, abc("2", "1"), each(fresh, healthy("1", 5))[:2],
		"node c: not reported yet"},
	{"details that differ are not joined", isDegraded, two,
		list{from("a", unhealthy("2", 5, "attempt 3")), from("b", unhealthy("2", 5, "attempt four")), from("c", fresh)},
		lines("key 2 on node a: unhealthy: attempt 3", "key 2 on node b: unhealthy: attempt four")},
	{"one unhealthy", isDegraded, two[:2], list{from("a", unhealthy("2", 5, "err")), from("b", fresh)},
		"key 2 on node a: unhealthy: err"},
	{"two with the same detail", isDegraded, two, but(each(unhealthy("2", 5, "sealed")), from("c", fresh)),
		"key 2 on nodes a, b: unhealthy: sealed"},
	{"two with different details", isDegraded, two,
		list{from("a", unhealthy("2", 5, "sealed")), from("b", inError("2", 5, "refused")), from("c", fresh)},
		lines("key 2 on node b: error: refused", "key 2 on node a: unhealthy: sealed")},
	{"8 lines", isDegraded, eight, eightReports, eightLines},
	{"more than 8 lines", isDegraded, twelve, twelveReports,
		lines(eightLines, "and 4 more; see kubectl kms-health status")},
	{"two keys of a node", isDegraded, abc("2", "1")[:1], a(unhealthy("2", 5, "x"), inError("1", 5, "y")),
		lines("key 1 on node a: error: y", "key 2 on node a: unhealthy: x")},
	{"a container cannot start", isDegraded,
		[]Node{with(on("a", "2"), broken("kms-2", "CrashLoopBackOff: exit code 1")), on("b", "2")}, ok[1:2],
		lines("node a: container kms-2 cannot start: CrashLoopBackOff: exit code 1",
			"node a: not reported yet")},
	{"stale after unhealthy", isDegraded, two[:2], list{from("a", healthy("2", 999)), from("b", unhealthy("2", 5, "x"))},
		lines("key 2 on node b: unhealthy: x", "node a: stopped reporting")},
	{"unhealthy, and silent", isDegraded, one, a(unhealthy("2", 999, "sealed")),
		"key 2 on node a: unhealthy, and stopped reporting: sealed"},
	{"both keys of a node are stale", isDegraded, abc("2", "1")[:1], a(healthy("2", 999), healthy("1", 998)),
		"node a: stopped reporting"},
	{"one key of a node is stale", isDegraded, abc("2", "1")[:1], a(fresh, healthy("1", 998)),
		"key 1 on node a: stopped reporting"},
	{"control characters are replaced", isDegraded, one, a(unhealthy("2", 5, "\x1b[31mred\x00\nline\u2028\u202etwo")),
		"key 2 on node a: unhealthy: [31mred  line  two"},
	{"a long detail is cut at a rune", isDegraded, one, a(unhealthy("2", 5, "x"+strings.Repeat("é", 300))),
		"key 2 on node a: unhealthy: x" + strings.Repeat("é", 126) + "…"},
	{"a keyID of unexpected characters", isDegraded, []Node{on("a")},
		a(unhealthy("2\n\x1b[2J"+strings.Repeat("9", 5000), 5, "x")), "key 2  [2J" + strings.Repeat("9", 55) +
			"… on node a: unhealthy: x"},

	{"all report", isReporting, two, ok, "3 nodes report"},
	{"nothing yet", isReporting, two, nil, "nodes a, b, c: not reported yet"},
	{"no pods", isReporting, nil, nil, "no pod of the API server runs on a node"},
	{"stale, and why", isReporting, []Node{on("a", "2"), with(on("b", "2"), down),
		with(on("c", "2"), replacing(60))}, each(healthy("2", 300)),
		lines("node a: stopped reporting", "node b: stopped reporting; the Node is not Ready",
			"node c: stopped reporting; its API server is being replaced")},
	{"unreadable, and so not missing", isReporting, abc("2", "1")[:1], list{unreadable("a")},
		"node a: the report cannot be read: message is not a JSON array"},
	{"fewer plugins", isReporting, []Node{with(on("a", "2", "1"), overdue)}, a(fresh),
		"key 1 on node a: not reported yet"},

	{"they differ", isAgreed, two, b(naming("k-8", fresh)),
		lines("key 2 on nodes a, c: KEK ID k-7", "key 2 on node b: KEK ID k-8")},
	{"they differ, and more", isAgreed, two,
		list{from("a", fresh), from("b", naming("k-8", fresh)), from("c", healthy("2", 999))},
		lines("key 2 on node a: KEK ID k-7", "key 2 on node b: KEK ID k-8", "key 2 on node c: stopped reporting")},
	{"unhealthy and missing", isAgreed, two, b(inError("2", 5, "x"))[:2],
		lines("key 2 on node b: the plugin is not healthy, or reports no KEK ID", "key 2 on node c: not reported yet")},
	{"not in use yet", isAgreed, []Node{on("a", "2"), on("b", "1"), noKMS("c")}, b(healthy("1", 5))[:2],
		lines("key 2 on node b: not in use yet: the API server writes with key 1",
			"key 2 on node c: not in use yet: the API server writes without KMS")},
	{"no pods", isAgreed, nil, nil, "no report yet"},
}

func TestMessages(t *testing.T) {
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Now: now, WriteKey: "2", Nodes: tt.nodes, Reports: tt.reports}
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
	got := Evaluate(&Input{Now: now, WriteKey: "2", Nodes: two, Reports: but(each(naming(version(7), fresh)),
		from("b", naming(version(8), fresh)))}).Conditions[contract.WriteKeyAgreed]
	lines := strings.Split(got.Message, "\n")
	if got.Reason != contract.KeysDiffer || len(lines) != 2 {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
	if a, b := lines[0], lines[len(lines)-1]; !strings.HasSuffix(a, "/7") || !strings.HasSuffix(b, "/8") {
		t.Errorf("an admin cannot distinguish them:\n%s", got.Message)
	}
}

// maxMessage bounds a condition's message: maxLines lines and one more. A line has nodes' names of 256 bytes and one
// more (253), a key (64), and 256 bytes of detail or a KEK ID (1,024).
const maxMessage = 14 * 1024

func TestMessagesAreBounded(t *testing.T) {
	long, key := strings.Repeat("n", 250), strings.Repeat("1", 250)
	var nodes []Node
	var reports []Report
	for i := range 60 {
		name := fmt.Sprintf("%s%03d", long, i)
		n := on(name, key)
		if i%3 == 0 {
			n.Keys = nil
		}
		nodes = append(nodes, n)
		entries := []Entry{healthy("2", 999), naming(strings.Repeat(string(rune('a'+i%26)), 1024), healthy(key, 5))}
		for k := range 200 {
			e := inError(fmt.Sprintf("%d%s", k, strings.Repeat("\x00", 200)), 5, strings.Repeat("<\x07", i+500))
			e.KEKID, e.Status = strings.Repeat("\"", 1024-i), []contract.Status{contract.Healthy, contract.Error,
				contract.Unhealthy}[(i+k)%3]
			entries = append(entries, e)
		}
		reports = append(reports, from(name, entries...))
	}
	for _, key := range []string{"", "2", key} {
		for _, c := range Evaluate(&Input{Now: now, Nodes: nodes, Reports: reports, WriteKey: key}).Conditions {
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
