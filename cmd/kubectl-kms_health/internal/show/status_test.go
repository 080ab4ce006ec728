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

const awsNode = "ip-10-0-132-45.eu-central-1.compute.internal"

func status(plugins ...view.Plugin) *view.Status {
	checked := metav1.NewTime(now.Add(-5 * time.Second))
	for i := range plugins {
		plugins[i].LastChecked = &checked
	}
	return &view.Status{Time: now, Verdict: view.Healthy, Summary: "Healthy: all.", APIServers: []view.APIServer{{Name: "kube-apiserver", Plugins: plugins}}}
}

// widest is the longest line of a text, in columns.
func widest(text string) (longest int) {
	for line := range strings.Lines(text) {
		longest = max(longest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return longest
}

func TestATableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{120, 100, 80} {
		s := status(
			view.Plugin{Node: awsNode, KeyID: "2", Write: true, State: rollup.Healthy, KEKID: "arn:aws:kms:eu-central-1:111122223333:key/1234abcd"},
			view.Plugin{Node: "master-1", KeyID: "1", State: rollup.Missing, KEKID: "k"})
		if text := Status(s, Options{Width: width}); widest(text) > width || !strings.Contains(text, "arn:aws…1234abcd") || !strings.Contains(text, "not reported yet") {
			t.Errorf("%d columns for %d:\n%s", widest(text), width, text)
		}
	}
	s := status(view.Plugin{Node: awsNode, KeyID: strings.Repeat("9", 5000), State: rollup.Unreadable, KEKID: "k"})
	for _, width := range []int{1, 0, -1} {
		if text := Status(s, Options{Width: width}); widest(text) > 120 {
			t.Errorf("width %d:\n%s", width, text)
		}
	}
}

func TestManyProblemsAreBounded(t *testing.T) {
	s := status()
	for range 300 {
		s.Problems = append(s.Problems, view.Problem{APIServer: "a", Node: "n", Summary: "unhealthy"})
	}
	if text := Status(s, Options{Width: 80}); strings.Count(text, "unhealthy") != maxProblems || !strings.Contains(text, "and 290 more problems; -o wide shows all") {
		t.Error(text)
	}
	if text := Status(s, Options{Width: 80, Wide: true}); strings.Count(text, "unhealthy") != 300 {
		t.Error(text)
	}
}

func TestTextIsWrappedAndCommandsAreNot(t *testing.T) {
	const command = "oc logs -n openshift-kube-apiserver kube-apiserver-master-1.a-long-domain.example.com -c kms-plugin-2"
	for _, text := range []string{"key 2 on node master-1: unhealthy: sealed; see " + command, "a text before: " + command + "; and a text after it", command, ""} {
		for _, width := range []int{20, 40, 80} {
			wrapped := wrap(text, indent, width)
			if strings.Contains(text, command) && !strings.Contains(wrapped, command) || strings.Join(strings.Fields(wrapped), " ") != text {
				t.Errorf("width %d:\n%s", width, wrapped)
			}
		}
	}
}

// Every writer of a status can choose its text.
func TestTextOfOthersIsCleaned(t *testing.T) {
	const hostile = "a\x1b[2J\u009b\u202e\u2028\xff\nb"
	s := status(view.Plugin{Node: hostile, KeyID: hostile, State: rollup.State(hostile), KEKID: hostile, Reporter: hostile})
	s.Summary, s.Node = hostile, hostile
	s.Problems = []view.Problem{{APIServer: hostile, Node: hostile, KeyID: hostile, Summary: hostile, Detail: hostile, Next: &view.Command{Node: hostile, Command: hostile}}}
	s.APIServers[0].Conditions = []metav1.Condition{{Type: contract.PluginsDegraded, Status: metav1.ConditionStatus(hostile), Reason: hostile, Message: hostile}}
	s.APIServers[0].Reports = []view.Report{{Node: hostile, Writer: hostile}}
	for _, wide := range []bool{true, false} {
		if text := Status(s, Options{Width: 80, Wide: wide}); strings.ContainsAny(text, "\x1b\u009b\u202e\u2028") || !utf8.ValidString(text) {
			t.Errorf("%q", text)
		}
	}
}
