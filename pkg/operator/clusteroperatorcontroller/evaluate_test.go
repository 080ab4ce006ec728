package clusteroperatorcontroller

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// start is the time at which the tests begin.
var start = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

const inertia = 2 * time.Minute

// delivers is a target whose delivery has a status, with healthy plugins.
func delivers(name string, reason delivery.Reason, message string) (t Target) {
	t.Name, t.Status, t.Judged = name, delivery.Status{Reason: reason, Message: message}, true
	t.Degraded = operatorstatus.Condition{Type: contract.PluginsDegraded, Status: operatorstatus.False, Reason: contract.AsExpected}
	return t
}

// ok is a target without a problem.
func ok(name string) Target { return delivers(name, contract.AsExpected, "one beside each") }

// pluginsAre is a target whose roll-up has a condition since a time.
func pluginsAre(name, status, reason, message string, since time.Time) Target {
	t := ok(name)
	t.Degraded = operatorstatus.Condition{Type: contract.PluginsDegraded, Status: status, Reason: reason, Message: message,
		LastTransitionTime: since}
	return t
}

// exceeded is a target whose delivery is under way for too long.
func exceeded(t Target) Target {
	t.Reporting = operatorstatus.Condition{Type: contract.HealthReporting, Status: operatorstatus.False,
		Reason: contract.ProgressDeadlineExceeded, Message: t.Status.Message}
	return t
}

// history evaluates a ClusterOperator over time. The conditions of an evaluation are the previous ones of the next.
type history struct {
	since    map[string]time.Time
	standing map[string]operatorstatus.Condition
}

// at evaluates targets while a configuration is active.
func (s *history) at(after time.Duration, invalid string, targets ...Target) (map[string]operatorstatus.Condition,
	time.Time) {
	return s.judge(Input{Now: start.Add(after), Configuration: invalid, Configured: true, Targets: targets})
}

func (s *history) judge(in Input) (_ map[string]operatorstatus.Condition, again time.Time) {
	in.Inertia, in.Since, in.Previous = inertia, s.since, s.standing
	s.standing, again, s.since = Evaluate(&in)
	return s.standing, again
}

const stopsUpgrades = "False PluginUnhealthy an upgrade restarts API servers, which cannot read Secrets while their " +
	"KMS plugin is unhealthy: "

func configured(all ...Target) Input { return Input{Configured: true, Targets: all} }

var longAgo = start.Add(-time.Hour)

type texts = map[string]string // status, reason and message

var normal = texts{
	Progressing: "False AsExpected ", Degraded: "False AsExpected ", Upgradeable: "True AsExpected ",
}

var clusterOperators = []struct {
	name    string
	in      Input
	want    texts // the other texts are as in normal
	settled bool  // evaluated again when the inertia is over
}{
	{"no problem", configured(ok("a"), ok("b")),
		texts{Available: "True AsExpected a: one beside each\nb: one beside each"}, false},
	{"no target", Input{Configured: true}, texts{Available: "True AsExpected no API server is configured"}, false},
	{"no configuration yet", Input{}, texts{Available: "False NoConfiguration no configuration is active"}, true},
	{"an invalid configuration, and none before", Input{Configuration: "apiServers: Required"}, texts{
		Available: "False NoConfiguration no configuration is active: apiServers: Required",
		Degraded:  "True Configuration_Invalid apiServers: Required"}, true},
	{"an invalid configuration, and an earlier one active",
		Input{Configured: true, Configuration: "apiServers: Required", Targets: []Target{ok("a")}},
		texts{Available: "True AsExpected a: one beside each", Degraded: "True Configuration_Invalid apiServers: Required"},
		true},

	{"a delivery on its way",
		configured(delivers("a", contract.Progressing, "1 of 3"), delivers("b", contract.Removing, "ConfigMaps")),
		texts{Available: "True AsExpected a: 1 of 3\nb: ConfigMaps", Progressing: "True Removing a: 1 of 3\nb: ConfigMaps"},
		true},
	{"a delivery that is under way for too long", configured(exceeded(delivers("a", contract.Progressing, "1 of 3"))),
		texts{
			Available: "True AsExpected a: 1 of 3",
			Degraded:  "True Delivery_ProgressDeadlineExceeded a: 1 of 3"}, true},
	{"no pods, and no namespace",
		configured(delivers("a", contract.NoPods, "none"), delivers("b", contract.NamespaceMissing, "no ns")),
		texts{Available: "True AsExpected a: none\nb: no ns"}, true},
	{"a delivery that fails", configured(ok("a"), delivers("b", contract.SocketVolumeMissing, "no volume")), texts{
		Available: "True AsExpected a: one beside each\nb: no volume",
		Degraded:  "True Delivery_SocketVolumeMissing b: no volume"}, true},

	{"an unhealthy plugin, for long",
		configured(pluginsAre("a", operatorstatus.True, contract.PluginError, "x\ny", longAgo), ok("b")),
		texts{
			Available:   "True AsExpected a: one beside each\nb: one beside each",
			Degraded:    "True KMSPlugins_PluginError a: x\na: y",
			Upgradeable: stopsUpgrades + "a"}, true},
	{"two with unhealthy plugins",
		configured(pluginsAre("a", operatorstatus.True, contract.PluginError, "x", longAgo),
			pluginsAre("b", operatorstatus.True, contract.PluginError, "x", longAgo)), texts{
			Degraded:    "True KMSPlugins_PluginError a: x\nb: x",
			Upgradeable: stopsUpgrades + "a, b"}, true},
	{"an unhealthy plugin, for a moment", configured(pluginsAre("a", operatorstatus.True, contract.PluginError, "x", start)),
		nil, false},
	{"a report that is stale, for long",
		configured(pluginsAre("a", operatorstatus.Unknown, contract.ReporterStale, "x", longAgo)),
		texts{Degraded: "Unknown KMSPlugins_ReporterStale a: x"}, true},

	// Several problems: once one has lasted for the inertia, all count.
	{"True outweighs Unknown; reasons sorted, each once", Input{Configured: true, Configuration: "c", Targets: []Target{
		pluginsAre("a", operatorstatus.Unknown, contract.ReporterStale, "x", longAgo),
		pluginsAre("b", operatorstatus.True, contract.PluginError, "y", start),
		pluginsAre("c", operatorstatus.Unknown, contract.ReporterStale, "z", start), delivers("d", contract.Refused, "w")}},
		texts{
			Degraded: "True Configuration_Invalid::Delivery_Refused::KMSPlugins_PluginError::KMSPlugins_ReporterStale " +
				"c\na: x\nb: y\nc: z\nd: w",
			Upgradeable: stopsUpgrades + "b"}, true},
	{"Degraded for another reason, and a stale report",
		Input{Configured: true, Configuration: "c",
			Targets: []Target{pluginsAre("a", operatorstatus.Unknown, contract.ReporterStale, "x", start)}},
		texts{Degraded: "True Configuration_Invalid::KMSPlugins_ReporterStale c\na: x"}, true},
}

func TestConditions(t *testing.T) {
	for _, tt := range clusterOperators {
		t.Run(tt.name, func(t *testing.T) {
			s := &history{}
			tt.in.Now = start
			got, _ := s.judge(tt.in)
			if tt.settled {
				if c := got[Degraded]; c.Status != operatorstatus.False {
					t.Errorf("before the inertia is over: %+v", c)
				}
				tt.in.Now = start.Add(inertia + 1)
				got, _ = s.judge(tt.in)
			}
			if len(got) != 4 {
				t.Errorf("%d conditions: %v", len(got), got)
			}
			have, want := texts{}, maps.Clone(normal)
			maps.Copy(want, tt.want)
			for kind := range want {
				have[kind] = got[kind].Status + " " + got[kind].Reason + " " + got[kind].Message
			}
			if d := cmp.Diff(want, have); d != "" {
				t.Error(d)
			}
		})
	}
}

var refused = delivers("a", contract.Refused, "x")

func unhealthySince(since time.Duration) Target {
	return pluginsAre("b", operatorstatus.True, contract.PluginError, "y", start.Add(since))
}

type moment struct {
	at      time.Duration
	invalid string
	targets []Target
	want    string
	again   time.Duration // 0: never
}

var failing, recovered = []Target{refused}, []Target{ok("a")}

const notDegraded, isDegraded = "False AsExpected", "True Delivery_Refused"

var stories = []struct {
	name  string
	story []moment
}{
	{"not before, and at the instant", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{inertia - 1, "", failing, notDegraded, inertia + 1},
		{inertia, "", failing, notDegraded, inertia + 1},
		{inertia + 1, "", failing, isDegraded, 0},
	}},
	{"a problem that recovers and returns starts a new inertia", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{time.Minute, "", recovered, notDegraded, 0},
		{time.Minute + time.Second, "", failing, notDegraded, 3*time.Minute + time.Second + 1},
		{inertia + 1, "", failing, notDegraded, 3*time.Minute + time.Second + 1},
		{3*time.Minute + time.Second + 1, "", failing, isDegraded, 0},
	}},
	{"another reason of the same delivery continues the inertia", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{time.Minute, "", []Target{delivers("a", contract.RequestFailed, "x")}, notDegraded, inertia + 1},
		{inertia + 1, "", []Target{delivers("a", contract.RequestFailed, "x")}, "True Delivery_RequestFailed", 0},
	}},
	{"another message is the same problem", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{time.Minute, "", []Target{delivers("a", contract.Refused, "another message")}, notDegraded, inertia + 1},
	}},
	{"a condition counts from when it was seen, whatever its own time is", []moment{
		{0, "", []Target{unhealthySince(-time.Hour)}, notDegraded, inertia + 1},
		{time.Minute, "", []Target{unhealthySince(time.Hour)}, notDegraded, inertia + 1},
		{inertia + 1, "", []Target{unhealthySince(time.Hour)}, "True KMSPlugins_PluginError", 0},
	}},
	{"one that has lasted makes the newer ones count", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{time.Minute, "", []Target{refused, unhealthySince(time.Minute)}, notDegraded, inertia + 1},
		{inertia + 1, "", []Target{refused, unhealthySince(time.Minute)}, "True Delivery_Refused::KMSPlugins_PluginError", 0},
	}},
	{"the next evaluation is for the first of several", []moment{
		{0, "", []Target{unhealthySince(0)}, notDegraded, inertia + 1},
		{time.Minute, "", []Target{refused, unhealthySince(0)}, notDegraded, inertia + 1},
	}},
	{"a reported problem stays while any problem lasts", []moment{
		{0, "", failing, notDegraded, inertia + 1},
		{inertia + 1, "", failing, isDegraded, 0},
		{3 * time.Minute, "c", failing, "True Configuration_Invalid::Delivery_Refused", 0},
		{4 * time.Minute, "c", recovered, "True Configuration_Invalid", 0},
		{4*time.Minute + 1, "",
			[]Target{pluginsAre("b", operatorstatus.Unknown, contract.ReporterStale, "y", start.Add(4*time.Minute))},
			"Unknown KMSPlugins_ReporterStale", 0},
		{4*time.Minute + 2, "", failing, isDegraded, 0},
		{5 * time.Minute, "", recovered, notDegraded, 0},
		{5*time.Minute + 1, "", failing, notDegraded, 7*time.Minute + 2},
	}},
}

func TestInertia(t *testing.T) {
	for _, tt := range stories {
		t.Run(tt.name, func(t *testing.T) {
			s := &history{}
			for i, m := range tt.story {
				got, again := s.at(m.at, m.invalid, m.targets...)
				if have := got[Degraded].Status + " " + got[Degraded].Reason; have != m.want {
					t.Errorf("moment %d: %s, want %s", i, have, m.want)
				}
				want := time.Time{}
				if m.again > 0 {
					want = start.Add(m.again)
				}
				if !again.Equal(want) {
					t.Errorf("moment %d: again at %s, want %s", i, again, want)
				}
			}
		})
	}
}

// After a restart, Upgradeable does not wait for the verdicts of all API servers: one that is judged healthy no longer
// stops upgrades.
func TestUpgradeableIsOfThePluginsThatAreJudged(t *testing.T) {
	s := &history{standing: map[string]operatorstatus.Condition{
		Degraded:    {Type: Degraded, Status: operatorstatus.True, Reason: "KMSPlugins_PluginError"},
		Upgradeable: {Type: Upgradeable, Status: operatorstatus.False, Reason: contract.PluginUnhealthy},
	}}
	got, _ := s.at(0, "", ok("a"), Target{})
	if got[Degraded].Status != operatorstatus.False || got[Upgradeable].Status != operatorstatus.True {
		t.Errorf("%+v", got)
	}
}
