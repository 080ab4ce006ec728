package show

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var now = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// status of one target with these plugins, checked five seconds ago.
func status(plugins ...view.Plugin) *view.Status {
	for i := range plugins {
		plugins[i].LastChecked = &metav1.Time{Time: now.Add(-5 * time.Second)}
	}
	return &view.Status{Time: metav1.NewTime(now), Targets: []view.TargetStatus{{Target: "kubeapiservers", Plugins: plugins}}}
}

func TestTheReasonIsBeforeTheDetail(t *testing.T) {
	for want, p := range map[string]view.Plugin{
		"5s\n    Timeout: Status: no answer within 10s\n": {Reason: contract.Timeout, Detail: "Status: no answer within 10s"},
		"5s\n    no answer within 10s\n":                  {Detail: "no answer within 10s"}, // of an earlier version
		"5s\n    Timeout\n":                               {Reason: contract.Timeout},
	} {
		p.Node, p.KeyID, p.State = "master-0", "2", rollup.Error
		if table := Table(status(p), Options{Width: 120}); !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestIDsAreShortenedUnlessTwoWouldBeEqual(t *testing.T) {
	const long, unlike, alike = "arn:aws:kms:key/1234abcd", "arn:aws:kms:key/1234abce", "arn:gcp:kms:key/1234abcd"
	for name, tt := range map[string]struct {
		ids  []string
		want []string
	}{
		"short":            {[]string{"k-7", "0123456789ab"}, []string{"  k-7  ", "  0123456789ab  "}},
		"long":             {[]string{long, long}, []string{"  arn:aws…1234abcd  "}},
		"unlike":           {[]string{long, unlike}, []string{"  arn:aws…1234abcd  ", "  arn:aws…1234abce  "}},
		"alike":            {[]string{long, strings.Replace(alike, "gcp", "aws2", 1)}, []string{"  " + long + "  ", "  arn:aws2:kms:key/1234abcd  "}},
		"cuts at a rune":   {[]string{strings.Repeat("ö", 17)}, []string{"  ööööööö…öööööööö  "}},
		"none":             {[]string{""}, []string{"  -  "}},
		"steers no screen": {[]string{"a\x1b[2Jb"}, []string{"  a [2Jb  "}},
	} {
		t.Run(name, func(t *testing.T) {
			var plugins []view.Plugin
			for _, id := range tt.ids {
				plugins = append(plugins, view.Plugin{Node: "a", KeyID: "2", State: rollup.Healthy, KEKID: id})
			}
			table := Table(status(plugins...), Options{Width: 80})
			for _, want := range tt.want {
				if !strings.Contains(table, want) {
					t.Errorf("no %q in\n%s", want, table)
				}
			}
		})
	}
}

func TestExternalTextDoesNotControlTheTerminal(t *testing.T) {
	const evil = "a\x1b[2J\r\u202eb\u0085c"
	s := status(view.Plugin{Node: evil, KeyID: evil, KEKID: evil, State: rollup.Error, Reason: evil, Detail: evil, Reporter: evil, Form: operatorcr.FormCondition})
	s.Targets[0].Conditions = []view.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil + "\n" + evil}}
	s.Targets[0].WriteKey = rollup.Agreement{KeyID: evil, Nodes: []rollup.NodeAgreement{{Node: evil, Answer: "differs", KEKID: evil}}}
	e := view.Explain(s, evil)
	for _, text := range []string{Table(s, Options{Width: 80, Doubtful: true}), Table(s, Options{Wide: true}), Prose(&e, Options{Width: 80})} {
		if strings.ContainsAny(text, "\x1b\r\u202e\u0085") {
			t.Errorf("%q", text)
		}
	}
}

func TestOnlyStatesAreColoured(t *testing.T) {
	for state, want := range map[rollup.State]string{
		rollup.Healthy: green + "healthy" + plain, rollup.Unhealthy: red + "unhealthy" + plain, rollup.Error: red + "error" + plain,
		rollup.Stale: yellow + "stale" + plain, rollup.Skewed: yellow + "clock differs" + plain, rollup.Missing: yellow + "not yet observed" + plain,
		rollup.Unreadable: yellow + "unreadable" + plain,
	} {
		s := status(view.Plugin{Node: "a", KeyID: "2", State: state})
		coloured, without := Table(s, Options{Width: 80, Colour: true}), Table(s, Options{Width: 80})
		if strings.Count(coloured, "\x1b") != 2 || !strings.Contains(coloured, want) {
			t.Errorf("%q", coloured)
		}
		// The columns stay where they are.
		if bare := strings.NewReplacer(red, "", green, "", yellow, "", plain, "").Replace(coloured); bare != without {
			t.Errorf("%q, want %q", bare, without)
		}
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Second: "12s", -300 * time.Millisecond: "0s", -time.Minute: "-60s", 26 * time.Hour: "26h",
	} {
		if got := age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestAgreementAsText(t *testing.T) {
	two := func(answers ...rollup.NodeAgreement) []rollup.NodeAgreement { return answers }
	for want, w := range map[string]rollup.Agreement{
		"the one node writes with key 2 and the KEK ID k": {KeyID: "2", Agreed: true, KEKID: "k", Nodes: two(rollup.NodeAgreement{Node: "a"})},
		"key 2, the nodes report different KEK IDs: k on a; l on b; no report that can be read on c": {KeyID: "2", Nodes: two(
			rollup.NodeAgreement{Node: "a", Answer: "differs", KEKID: "k"}, rollup.NodeAgreement{Node: "b", Answer: "differs", KEKID: "l"}, rollup.NodeAgreement{Node: "c", Answer: "missing"})},
		"the nodes write with different keys: key 1 on b; key 2 on a, c": {Nodes: two(
			rollup.NodeAgreement{Node: "a", First: "2"}, rollup.NodeAgreement{Node: "b", First: "1"}, rollup.NodeAgreement{Node: "c", First: "2"}, rollup.NodeAgreement{Node: "d"})},
		"no node reports which key it writes with": {Nodes: two(rollup.NodeAgreement{Node: "a"})},
	} {
		if got := agreed(&w, false); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAgreementByTheReportsIsShownWhileTheOperatorIsStopped(t *testing.T) {
	s := status(view.Plugin{Node: "a", KeyID: "2", State: rollup.Healthy})
	s.Targets[0].Conditions = []view.Condition{{Type: contract.WriteKeyAgreed, Status: "True", Reason: "AsExpected"}}
	s.Targets[0].WriteKey = rollup.Agreement{KeyID: "2", Nodes: []rollup.NodeAgreement{{Node: "a", Answer: contract.NotHealthy}}}
	for doubtful, want := range map[bool]bool{true: true, false: false} {
		if got := strings.Contains(Table(s, Options{Width: 80, Doubtful: doubtful}), "by the reports"); got != want {
			t.Errorf("doubtful %t: %t", doubtful, got)
		}
	}
}

func TestAConditionThatTheReportsContradictIsMarked(t *testing.T) {
	const note = "A report above differs"
	for _, tt := range []struct {
		state  rollup.State
		status string
		want   bool
	}{
		{rollup.Error, operatorcr.False, true},
		{rollup.Unhealthy, operatorcr.False, true},
		{rollup.Error, operatorcr.True, false},
		{rollup.Healthy, operatorcr.False, false},
		{rollup.Stale, operatorcr.False, false},
	} {
		s := status(view.Plugin{Node: "a", KeyID: "2", State: tt.state})
		s.Targets[0].Conditions = []view.Condition{{Type: contract.PluginsDegraded, Status: tt.status, Reason: "R", Message: "m"}}
		if table := Table(s, Options{Width: 80}); strings.Contains(table, note) != tt.want {
			t.Errorf("%+v:\n%s", tt, table)
		}
	}
}
