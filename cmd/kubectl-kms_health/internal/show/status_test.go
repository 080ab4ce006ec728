package show

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var now = metav1.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

func status(plugins ...view.Plugin) *view.Status {
	checked := metav1.NewTime(now.Add(-5 * time.Second))
	for i := range plugins {
		plugins[i].LastChecked = checked
	}
	return &view.Status{Time: now, Verdict: view.Healthy, Summary: "Healthy: all.", APIServers: []view.APIServer{{Name: "kube-apiserver", AsOf: now.Time, Plugins: plugins}}}
}

func TestLongIdentifiersOfATableAreShortenedUnlessItIsWide(t *testing.T) {
	const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd"
	s := status(
		view.Plugin{Node: "ip-10-0-132-45.eu-central-1.compute.internal", KeyID: "2", Write: true, State: rollup.Healthy, KEKID: arn},
		view.Plugin{Node: "master-1", KeyID: strings.Repeat("9", 5000), State: rollup.Missing, KEKID: "k"})
	text := Status(s, false)
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 140 {
			t.Errorf("%d columns", len(line))
		}
	}
	if !strings.Contains(text, "arn:aws…1234abcd") || !strings.Contains(text, "missing") {
		t.Error(text)
	}
	if wide := Status(s, true); !strings.Contains(wide, arn) || !strings.Contains(wide, strings.Repeat("9", 5000)) {
		t.Error(wide)
	}
}

func TestAProblemOfAllNodesPointsAtTheKMS(t *testing.T) {
	s := status()
	s.Problems = []view.Problem{{APIServer: "kube-apiserver", Nodes: []string{"a", "b"}, AllNodes: true, KeyID: "2", Summary: "unhealthy", Detail: "x\ny", Fix: "unseal", DoNot: "rotate"}}
	const all = "\nkube-apiserver on a, b, key 2: unhealthy\n  x\n  y\n  All nodes: the KMS itself, or what they share. Do not restart an API server\n  Fix: unseal\n  Do not: rotate\n"
	if text := Status(s, false); !strings.Contains(text, all) {
		t.Error(text)
	}
}

// Every writer of a status can choose its text.
func TestTextOfOthersIsCleaned(t *testing.T) {
	const hostile = "a\x1b[2J\u009b\u202e\u2028\xff\nb"
	s := status(view.Plugin{Node: hostile, KeyID: hostile, State: rollup.State(hostile), KEKID: hostile, Reporter: hostile})
	s.Summary, s.Node = hostile, hostile
	s.Problems = []view.Problem{{APIServer: hostile, Nodes: []string{hostile}, KeyID: hostile, Summary: hostile, Detail: hostile, Next: hostile}}
	s.APIServers[0].Conditions = []metav1.Condition{{Type: contract.PluginsDegraded, Status: metav1.ConditionStatus(hostile), Reason: hostile, Message: hostile}}
	for _, wide := range []bool{true, false} {
		if text := Status(s, wide); strings.ContainsAny(text, "\x1b\u009b\u202e\u2028") || !utf8.ValidString(text) {
			t.Errorf("%q", text)
		}
	}
}
