//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/e2e/fixture"
)

func TestDrawnMovesFollowTheSeedAndExcludeEachOther(t *testing.T) {
	play := func(seed uint64) (names []string) {
		random, moves := rand.New(rand.NewPCG(seed, 0)), timeline{}
		for i := range 300 {
			running := moves[max(0, len(moves)-5):]
			m := draw(random, kinds, []string{"node-1", "node-2", "node-3"}, running, i < 150)
			for _, r := range running {
				if r.excludes(m.kind, m.node) {
					t.Fatalf("%s was drawn during %s", m, r)
				}
			}
			if m.early && i >= 150 || m.beside && m.node == "node-1" || m.lasts < m.least || m.lasts > m.most {
				t.Fatalf("move %d is %s for %s", i, m, m.lasts)
			}
			moves, names = append(moves, m), append(names, m.name+m.node)
		}
		return names
	}
	if one, again, other := play(1), play(1), play(2); !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Error("moves do not follow the seed")
	}
}

func TestJudgement(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	made := func(name, node string, from, to int) *move {
		k := kinds[slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })]
		return &move{kind: k, node: node, text: "cause-1.", start: at(from), end: at(to)}
	}
	const unhealthy, silence = "key 1 on node node-2: unhealthy: cause-1.", "node node-3: stopped reporting"
	// A phase lasts until its second of the run.
	type phase struct {
		until           int
		status, message string
	}
	none := phase{400, "False", ""}
	before := func(second int) phase { return phase{second, "False", ""} }
	lasts := func(states *[]fixture.State, until int, degraded, message string) {
		for next := len(*states); next < until; next++ {
			*states = append(*states, fixture.State{At: at(next), Conditions: map[string]operatorstatus.Condition{
				contract.PluginsDegraded: {Status: degraded, Message: message},
				contract.HealthReporting: {Status: "True", Message: "3 nodes report"},
				contract.WriteKeyAgreed:  {Status: "True", Message: `{"keyID":"1","kekID":"new"}`},
			}})
		}
	}
	fault, hang := made("unhealthy", "node-2", 100, 200), made("hang", "node-2", 100, 200)
	cut, other := made("network cut", "node-3", 120, 180), strings.Replace(unhealthy, "cause-1.", "cause-2.", 1)
	for _, c := range []struct {
		name   string
		moves  timeline
		states []phase
		kekID  string
		want   string // in the one problem; empty: none
	}{
		{"a fault is named until its end", timeline{fault}, []phase{before(105), {203, "True", unhealthy}, none}, "new", ""},
		{"a fault is not named", timeline{fault}, []phase{none}, "new", "KMSPluginsDegraded is False"},
		{"a fault is named as another", timeline{fault}, []phase{before(105), {203, "True", other}, none}, "new", "due at"},
		{"a hang has no text, but its reason in the report",
			timeline{hang}, []phase{before(105), {203, "True", unhealthy}, none}, "new", "due at"},
		{"what nobody can see need not be named", timeline{fault, cut}, []phase{none}, "new", ""},
		{"a fault is named after its end",
			timeline{fault}, []phase{before(105), {260, "True", unhealthy}, none}, "new", "still named"},
		{"an alarm without a fault", nil, []phase{before(100), {101, "True", unhealthy}, none}, "new", "without a cause"},
		{"silence for two minutes", nil, []phase{before(100), {219, "Unknown", silence}, none}, "new", ""},
		{"silence for more than two minutes",
			nil, []phase{before(100), {225, "Unknown", silence}, none}, "new", "without a cause"},
		{"silence in a cut, and two minutes more",
			timeline{cut}, []phase{before(130), {325, "Unknown", silence}, none}, "new", ""},
		{"a write under the former key", nil, []phase{none}, "old", "is under old"},
		{"a write under a key that is newer than the one agreed on", nil, []phase{none}, "newest", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := judgement{moves: c.moves, nodes: []string{"node-1", "node-2", "node-3"},
				kekIDs: []string{"old", "new", "newest"}, writes: []written{{at(50), c.kekID}}}
			for _, p := range c.states {
				lasts(&j.states, p.until, p.status, p.message)
			}
			j.judge()
			got := fmt.Sprint(j.problems)
			if c.want == "" && len(j.problems) > 0 || !strings.Contains(got, c.want) {
				t.Errorf("problems: %s, wanted %q", got, c.want)
			}
		})
	}
}
