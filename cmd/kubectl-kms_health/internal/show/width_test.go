package show

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const awsNode = "ip-10-0-132-45.eu-central-1.compute.internal"

// widest is the longest line of a text, in columns.
func widest(text string) int {
	longest := 0
	for line := range strings.Lines(text) {
		longest = max(longest, columns(strings.TrimSuffix(line, "\n")))
	}
	return longest
}

func fullStatus(node string) *view.Status {
	s := status(
		view.Plugin{Node: node, KeyID: "2", Write: true, State: rollup.Unhealthy, KEKID: "arn:aws:kms:eu-central-1:111122223333:key/1234abcd", Reason: contract.ReportedUnhealthy, Detail: strings.Repeat("vault is sealed ", 12)},
		view.Plugin{Node: node, KeyID: "1", State: rollup.Error, Detail: strings.Repeat("鍵が見つかりません", 12)},
		view.Plugin{Node: "z", State: rollup.Missing},
	)
	s.Targets[0].Conditions = []view.Condition{{
		Type: contract.PluginsDegraded, Status: "True", Reason: contract.PluginError,
		Message: "key 2: unhealthy: " + strings.Repeat("sealed ", 20) + "\nkey 1: error: \xff " + strings.Repeat("é\u0301", 40),
	}}
	return s
}

func TestATableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{200, 120, 80, 60, 50} {
		for _, node := range []string{"master-0", awsNode} {
			table := Table(fullStatus(node), Options{Width: width, Fits: true})
			if got := widest(table); got > width && width > 60 {
				t.Errorf("%d columns for %d:\n%s", got, width, table)
			}
			for _, want := range []string{node, "2 (write)", "unhealthy", "not yet observed", "5s", "arn:aws…1234abcd", "ReportedUnhealthy:"} {
				if !strings.Contains(table, want) {
					t.Errorf("width %d: no %q in\n%s", width, want, table)
				}
			}
		}
	}
	for _, width := range []int{1, 0, -1} {
		if table := Table(fullStatus(awsNode), Options{Width: width, Fits: true}); !strings.Contains(table, awsNode+"\n") {
			t.Errorf("width %d:\n%s", width, table)
		}
	}
}

// For programs: the names of nodes do not change where the columns are.
func TestColumnsAreTheSameWithoutATerminal(t *testing.T) {
	table := Table(fullStatus(awsNode), Options{Width: 80})
	for _, want := range []string{"TARGET          NODE", "kubeapiservers  " + awsNode + "  2 (write)  unhealthy         arn:aws…1234abcd  5s\n    ReportedUnhealthy: vault is sealed"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if first, _, _ := strings.Cut(Table(fullStatus("a"), Options{Width: 80, NoHeaders: true}), "\n"); !strings.HasPrefix(first, "kubeapiservers  a ") {
		t.Error(first)
	}
}

func TestCommandsStayOnOneLine(t *testing.T) {
	const command = "oc logs -n openshift-kube-apiserver kube-apiserver-master-1.a-long-domain.example.com -c kms-plugin-2"
	for name, text := range map[string]string{
		"at the end": "key 2 on node master-1: unhealthy: sealed; see " + command,
		"the middle": "the request is not approved: " + command + "; it expires tomorrow at noon, or some hours after",
		"alone":      command,
	} {
		for _, width := range []int{20, 40, 80, 120} {
			wrapped := wrap(text, "  ", "    ", width)
			if !strings.Contains(wrapped, command) {
				t.Errorf("%s, width %d:\n%s", name, width, wrapped)
			}
			if got := strings.Join(strings.Fields(wrapped), " "); got != text {
				t.Errorf("%s, width %d: %q", name, width, got)
			}
		}
	}
}

func TestTextIsWrappedByColumns(t *testing.T) {
	for name, tt := range map[string]struct {
		text  string
		width int
		want  []string
	}{
		"nothing":            {"", 80, []string{"-"}},
		"words":              {"aa bb cc", 24, []string{"-aa bb cc"}},
		"wide runes":         {strings.Repeat("鍵", 12), 21, []string{"-" + strings.Repeat("鍵", 10), "+" + strings.Repeat("鍵", 2)}},
		"combining runes":    {strings.Repeat("e\u0301", 20), 21, []string{"-" + strings.Repeat("e\u0301", 20)}},
		"a long word":        {"a " + strings.Repeat("b", 90) + " c", 30, []string{"-a", "+" + strings.Repeat("b", 90), "+c"}},
		"no room, a minimum": {"aaaaaaaaaa bbbbbbbbbb", -5, []string{"-aaaaaaaaaa", "+bbbbbbbbbb"}},
	} {
		if got := strings.Split(strings.TrimSuffix(wrap(tt.text, "-", "+", tt.width), "\n"), "\n"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestATableOfManyNodesIsShort(t *testing.T) {
	var plugins []view.Plugin
	for i := range 300 {
		plugins = append(plugins, view.Plugin{Node: fmt.Sprintf("node-%03d", i), KeyID: strings.Repeat("9", 5000), State: rollup.Healthy, KEKID: "k"})
	}
	table := Table(status(plugins...), Options{Width: 80})
	if n := strings.Count(table, "\n"); n != 301 || widest(table) > 80 {
		t.Errorf("%d lines, %d columns", n, widest(table))
	}
}
