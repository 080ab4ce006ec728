package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var now = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// valid is for how many seconds an entry is fresh.
const valid = contract.StaleIntervals * 30

// entry is an entry of so many seconds ago, every 30 s.
func entry(key, kek string, status contract.Status, ago int) contract.Entry {
	return contract.Entry{KeyID: key, KEKID: kek, Status: status, LastChecked: now.Add(-time.Duration(ago) * time.Second), Interval: 30 * time.Second}
}

// resource is a target with these reports, an operator's conditions, and the nodes
// that the API server runs on.
type resource struct {
	reports    map[string][]contract.Entry
	broken     map[string]string
	conditions map[string]string // messages by type
	nodes      []string
}

func (r resource) target(t *testing.T, name string) Target {
	t.Helper()
	conditions := []any{}
	add := func(conditionType, message string) {
		conditions = append(conditions, map[string]any{"type": conditionType, "status": "True", "reason": "AsExpected", "message": message})
	}
	for node, entries := range r.reports {
		message, err := contract.EncodeMessage(entries)
		if err != nil {
			t.Fatal(err)
		}
		add(contract.ConditionType(node), message)
	}
	for node, message := range r.broken {
		add(contract.ConditionType(node), message)
	}
	for conditionType, message := range r.conditions {
		add(conditionType, message)
	}
	statuses := []any{}
	for _, node := range r.nodes {
		statuses = append(statuses, map[string]any{"nodeName": node})
	}
	return Read(name, &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"conditions": conditions, "nodeStatuses": statuses},
	}})
}

type reports = map[string][]contract.Entry

func TestTheVerdictIsTheMostSevereKnownState(t *testing.T) {
	healthy := entry("2", "k", contract.Healthy, 5)
	broken, failed, old := entry("2", "k", contract.Unhealthy, 5), entry("2", "", contract.Error, 5), entry("2", "k", contract.Healthy, valid+1)
	ahead := entry("2", "k", contract.Healthy, -60)
	observed := map[string]string{contract.HealthReporting: "no pod of the API server is on a node"}
	for name, tt := range map[string]struct {
		resources []resource
		want      Verdict
	}{
		"no resource":                              {nil, CannotTell},
		"nothing reported anywhere":                {[]resource{{}, {}}, CannotTell},
		"all healthy":                              {[]resource{{reports: reports{"a": {healthy}, "b": {healthy}}}}, AllHealthy},
		"another target without any report":        {[]resource{{reports: reports{"a": {healthy}}}, {}}, AllHealthy},
		"another target that an operator awaits":   {[]resource{{reports: reports{"a": {healthy}}}, {conditions: observed}}, CannotTell},
		"unhealthy":                                {[]resource{{reports: reports{"a": {healthy}, "b": {broken}}}}, Unhealthy},
		"error":                                    {[]resource{{reports: reports{"a": {healthy}, "b": {failed}}}}, Unhealthy},
		"stale":                                    {[]resource{{reports: reports{"a": {healthy}, "b": {old}}}}, CannotTell},
		"stale, and was in error":                  {[]resource{{reports: reports{"a": {entry("2", "k", contract.Error, valid+1)}}}}, CannotTell},
		"clock differs":                            {[]resource{{reports: reports{"a": {healthy}, "b": {ahead}}}}, CannotTell},
		"unreadable":                               {[]resource{{reports: reports{"a": {healthy}}, broken: map[string]string{"b": "oops"}}}, CannotTell},
		"a node without a report":                  {[]resource{{reports: reports{"a": {healthy}}, nodes: []string{"a", "b"}}}, CannotTell},
		"a report on no plugin":                    {[]resource{{reports: reports{"a": {healthy}, "b": {}}}}, CannotTell},
		"unhealthy outweighs an earlier stale one": {[]resource{{reports: reports{"a": {old}, "b": {broken}}}}, Unhealthy},
		"unhealthy on a later target":              {[]resource{{reports: reports{"a": {old}}}, {reports: reports{"a": {failed}}}}, Unhealthy},
		"keys differ, which is not unhealthy":      {[]resource{{reports: reports{"a": {healthy}, "b": {entry("2", "k2", contract.Healthy, 5)}}}}, AllHealthy},
		"nodes of a static pod, and KMS is off":    {[]resource{{nodes: []string{"a"}}}, CannotTell},
		"an old report, and its node in no list":   {[]resource{{reports: reports{"gone": {old}, "a": {healthy}}, nodes: []string{"a"}}}, CannotTell},
	} {
		t.Run(name, func(t *testing.T) {
			var targets []Target
			for i, r := range tt.resources {
				targets = append(targets, r.target(t, fmt.Sprint("target-", i)))
			}
			s, _ := Of(targets, now)
			if got := s.Verdict(); got != tt.want {
				t.Errorf("%d, want %d: %+v", got, tt.want, s.Targets)
			}
		})
	}
}

func TestOneNodeIsEvaluatedByItself(t *testing.T) {
	one := resource{reports: reports{"a": {entry("2", "k", contract.Healthy, 5)}, "b": {entry("2", "k", contract.Error, 5)}}}
	other := resource{reports: reports{"b": {entry("2", "k", contract.Error, 5)}}}
	for node, want := range map[string]Verdict{"a": AllHealthy, "b": Unhealthy} {
		s, _ := Of([]Target{one.target(t, "one"), other.target(t, "other")}, now)
		s.Select([]string{node})
		if s.Verdict() != want || !slices.Equal(s.Nodes(), []string{node}) {
			t.Errorf("%s: %d, %v", node, s.Verdict(), s.Nodes())
		}
		if len(s.Targets[0].WriteKey.Nodes) != 2 {
			t.Error("the agreement is not that of all nodes")
		}
	}
}

// states are the rows of a target, in short.
func states(s *TargetStatus) (rows []string) {
	for _, p := range s.Plugins {
		row := fmt.Sprintf("%s %s %s", p.Node, p.KeyID, p.State)
		if p.Write {
			row += " write"
		}
		rows = append(rows, row)
	}
	return rows
}

func TestNodesThatShouldReportAreKnownFromTheResource(t *testing.T) {
	healthy := entry("2", "k", contract.Healthy, 5)
	for name, tt := range map[string]struct {
		resource resource
		want     []string
	}{
		"a static pod's node":       {resource{reports: reports{"a": {healthy}}, nodes: []string{"b", "a"}}, []string{"a 2 healthy write", "b  missing"}},
		"none while KMS is off":     {resource{nodes: []string{"a", "b"}}, nil},
		"a report on no plugin":     {resource{reports: reports{"a": {}}}, []string{"a  missing"}},
		"an unreadable one is one":  {resource{broken: map[string]string{"a": "oops"}, nodes: []string{"a"}}, []string{"a  unreadable"}},
		"the first is written with": {resource{reports: reports{"a": {entry("2", "k", contract.Error, 5), entry("1", "k", contract.Healthy, 5)}}}, []string{"a 2 error write", "a 1 healthy"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Of([]Target{tt.resource.target(t, "t")}, now)
			if got := states(&s.Targets[0]); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// What only the operator knows is derived from the reason, not from the message.
func TestAReportThatTheOperatorMissesIsAnUnknownState(t *testing.T) {
	target := resource{reports: reports{"a": {entry("2", "k", contract.Healthy, 5)}}}.target(t, "t")
	for reason, want := range map[string]Verdict{contract.ReportsMissing: CannotTell, contract.AsExpected: AllHealthy, contract.OtherPlugins: AllHealthy} {
		target.Resource.Conditions[contract.HealthReporting] = operatorcr.Condition{Type: contract.HealthReporting, Reason: reason}
		s, _ := Of([]Target{target}, now)
		if got := s.Verdict(); got != want {
			t.Errorf("%s: %d, want %d", reason, got, want)
		}
		s.Select([]string{"a"})
		if got := s.Verdict(); got != AllHealthy {
			t.Errorf("%s, node a alone: %d", reason, got)
		}
	}
	off := resource{nodes: []string{"a"}}.target(t, "t")
	off.Resource.Conditions[contract.HealthReporting] = operatorcr.Condition{Type: contract.HealthReporting, Reason: contract.NoPlugins}
	if s, _ := Of([]Target{off}, now); len(s.Targets[0].Plugins) > 0 {
		t.Errorf("no plugin is there yet, and reports are expected: %+v", s.Targets[0].Plugins)
	}
}

func TestTheNextEvaluationIsWhenTheFirstEntryBecomesStale(t *testing.T) {
	r := resource{reports: reports{"a": {entry("2", "k", contract.Healthy, 100)}, "b": {entry("2", "k", contract.Healthy, 5)}}}
	other := resource{reports: reports{"a": {entry("2", "k", contract.Healthy, 50)}}}
	targets := []Target{other.target(t, "other"), r.target(t, "t")}
	_, again := Of(targets, now)
	if want := now.Add((valid-100)*time.Second + 1); !again.Equal(want) {
		t.Fatalf("%s, want %s", again, want)
	}
	for at, want := range map[time.Time]rollup.State{again.Add(-1): rollup.Healthy, again: rollup.Stale} {
		if s, _ := Of(targets, at); s.Targets[1].Plugins[0].State != want {
			t.Errorf("at %s: %s", at, s.Targets[1].Plugins[0].State)
		}
	}
	if _, again := Of([]Target{resource{}.target(t, "t")}, now); !again.IsZero() {
		t.Error(again)
	}
}

func TestAgreementIsOfAllNodesThatAreKnown(t *testing.T) {
	healthy := func(key, kek string) []contract.Entry { return []contract.Entry{entry(key, kek, contract.Healthy, 5)} }
	for name, tt := range map[string]struct {
		resource resource
		key, kek string
		agreed   bool
		answers  []contract.Answer
	}{
		"agreed":               {resource{reports: reports{"a": healthy("2", "k"), "b": healthy("2", "k")}}, "2", "k", true, []contract.Answer{"agrees", "agrees"}},
		"remote keys differ":   {resource{reports: reports{"a": healthy("2", "k"), "b": healthy("2", "l")}}, "2", "", false, []contract.Answer{"differs", "differs"}},
		"written with another": {resource{reports: reports{"a": healthy("2", "k"), "b": healthy("1", "k")}}, "", "", false, []contract.Answer{"", ""}},
		"one stale":            {resource{reports: reports{"a": healthy("2", "k"), "b": {entry("2", "k", contract.Healthy, valid+1)}}}, "2", "", false, []contract.Answer{"agrees", "stale"}},
		"one unhealthy":        {resource{reports: reports{"a": healthy("2", "k"), "b": {entry("2", "k", contract.Error, 5)}}}, "2", "", false, []contract.Answer{"agrees", contract.NotHealthy}},
		"one missing":          {resource{reports: reports{"a": healthy("2", "k")}, nodes: []string{"b"}}, "2", "", false, []contract.Answer{"agrees", "missing"}},
		"one unreadable":       {resource{reports: reports{"a": healthy("2", "k")}, broken: map[string]string{"b": "oops"}}, "2", "", false, []contract.Answer{"agrees", "missing"}},
		"not reported":         {resource{broken: map[string]string{"a": "oops"}}, "", "", false, []contract.Answer{rollup.KeyNotKnown}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Of([]Target{tt.resource.target(t, "t")}, now)
			w := s.Targets[0].WriteKey
			var answers []contract.Answer
			for _, n := range w.Nodes {
				answers = append(answers, n.Answer)
			}
			if w.KeyID != tt.key || w.KEKID != tt.kek || w.Agreed != tt.agreed || !slices.Equal(answers, tt.answers) {
				t.Errorf("%+v", w)
			}
		})
	}
}

func TestTheNewestReportIsDatedByTheServersClock(t *testing.T) {
	written := now.Add(-time.Minute)
	target := Target{Resource: &operatorcr.Status{Reports: []operatorcr.Report{
		{Node: "ahead", Written: written, Entries: []contract.Entry{entry("2", "k", contract.Healthy, -3600)}},
		{Node: "unknown", Entries: []contract.Entry{entry("2", "k", contract.Healthy, 90), entry("1", "k", contract.Healthy, 70)}},
	}}}
	if got := target.Newest(); !got.Equal(written) {
		t.Error(got)
	}
	target.Resource.Reports = target.Resource.Reports[1:]
	if got := target.Newest(); !got.Equal(now.Add(-70 * time.Second)) {
		t.Error(got)
	}
}
