package status

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// start is the time at which the tests begin.
var start = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

const inertia = 2 * time.Minute

// ok is a target without a problem.
func ok(name string) Target {
	return Target{
		Name: name, Delivery: apiserver.Status{Reason: contract.AsExpected, Message: "one beside each"},
		Result: &rollup.Result{Conditions: []operatorcr.Condition{{Type: contract.PluginsDegraded, Status: operatorcr.False, Reason: contract.AsExpected}}},
	}
}

// pluginsAre is a target whose roll-up has a condition since a time.
func pluginsAre(name, status, reason, message string, since time.Time) Target {
	t := ok(name)
	t.Result = &rollup.Result{Conditions: []operatorcr.Condition{{Type: contract.PluginsDegraded, Status: status, Reason: reason, Message: message, LastTransitionTime: since}}}
	return t
}

// delivers is a target whose delivery has a status.
func delivers(name string, reason apiserver.Reason, message string) Target {
	t := ok(name)
	t.Delivery = apiserver.Status{Reason: reason, Message: message}
	return t
}

// exceeded is a target whose delivery is under way for too long.
func exceeded(t Target) Target {
	t.Reporting = operatorcr.Condition{Type: contract.HealthReporting, Status: operatorcr.False, Reason: contract.ProgressDeadlineExceeded, Message: t.Delivery.Message}
	return t
}

// history is a ClusterOperator over time, with what is written read back.
type history struct {
	since    map[string]time.Time
	standing map[string]operatorcr.Condition
}

func begin() *history { return &history{since: map[string]time.Time{}} }

// at evaluates targets, with a configuration active.
func (s *history) at(after time.Duration, invalid string, targets ...Target) (map[string]operatorcr.Condition, time.Time) {
	return s.judge(&Input{Now: start.Add(after), Configuration: invalid, Configured: true, Targets: targets})
}

func (s *history) judge(in *Input) (map[string]operatorcr.Condition, time.Time) {
	in.Inertia, in.Since, in.Previous = inertia, s.since, s.standing
	conditions, again := Evaluate(in)
	s.standing = map[string]operatorcr.Condition{}
	for _, c := range conditions {
		s.standing[c.Type] = c
	}
	return s.standing, again
}

func TestConditions(t *testing.T) {
	const never = "before the inertia is over"
	old := start.Add(-time.Hour)
	for _, tt := range []struct {
		name    string
		in      Input
		want    map[string]string // status, reason and message
		settled bool              // evaluated again when the inertia is over
	}{
		{"no problem", Input{Configured: true, Targets: []Target{ok("a"), ok("b")}}, map[string]string{
			Available: "True AsExpected a: one beside each\nb: one beside each", Progressing: "False AsExpected ", Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, false},
		{"no target", Input{Configured: true}, map[string]string{
			Available: "True AsExpected no target is configured", Progressing: "False AsExpected ", Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, false},
		{"no configuration yet", Input{}, map[string]string{
			Available: "False NoConfiguration no configuration is active", Progressing: "False AsExpected ", Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, true},
		{"an invalid configuration, and none before", Input{Configuration: "apiServers: Required"}, map[string]string{
			Available: "False NoConfiguration no configuration is active: apiServers: Required", Degraded: "True Configuration_Invalid apiServers: Required", Upgradeable: "True AsExpected "}, true},
		{"an invalid configuration, and an earlier one active", Input{Configured: true, Configuration: "apiServers: Required", Targets: []Target{ok("a")}}, map[string]string{
			Available: "True AsExpected a: one beside each", Degraded: "True Configuration_Invalid apiServers: Required", Upgradeable: "True AsExpected "}, true},

		{"a delivery on its way", Input{Configured: true, Targets: []Target{delivers("a", contract.Progressing, "1 of 3"), delivers("b", contract.Removing, "ConfigMaps")}}, map[string]string{
			Available: "True AsExpected a: 1 of 3\nb: ConfigMaps", Progressing: "True Removing a: 1 of 3\nb: ConfigMaps", Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, true},
		{"a delivery that is under way for too long", Input{Configured: true, Targets: []Target{exceeded(delivers("a", contract.Progressing, "1 of 3"))}}, map[string]string{
			Available: "True AsExpected a: 1 of 3", Progressing: "False AsExpected ", Degraded: "True Delivery_ProgressDeadlineExceeded a: 1 of 3", Upgradeable: "True AsExpected "}, true},
		{"no pods, and no namespace", Input{Configured: true, Targets: []Target{delivers("a", contract.NoPods, "none"), delivers("b", contract.NamespaceMissing, "no ns")}}, map[string]string{
			Available: "True AsExpected a: none\nb: no ns", Progressing: "False AsExpected ", Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, true},
		{"a delivery that fails", Input{Configured: true, Targets: []Target{ok("a"), delivers("b", contract.SocketVolumeMissing, "no volume")}}, map[string]string{
			Available: "True AsExpected a: one beside each\nb: no volume", Progressing: "False AsExpected ", Degraded: "True Delivery_SocketVolumeMissing b: no volume", Upgradeable: "True AsExpected "}, true},

		{"an unhealthy plugin, for long", Input{Configured: true, Targets: []Target{pluginsAre("a", operatorcr.True, contract.PluginError, "x\ny", old), ok("b")}}, map[string]string{
			Available: "True AsExpected a: one beside each\nb: one beside each", Progressing: "False AsExpected ", Degraded: "True KMSPlugins_PluginError a: x\na: y",
			Upgradeable: "False PluginUnhealthy an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: a"}, false},
		{"a reporter that cannot start is no unhealthy plugin", Input{Configured: true, Targets: []Target{pluginsAre("a", operatorcr.True, contract.ReporterNotRunning, "x", old)}}, map[string]string{
			Available: "True AsExpected a: one beside each", Degraded: "True KMSPlugins_ReporterNotRunning a: x", Upgradeable: "True AsExpected "}, false},
		{"two with unhealthy plugins", Input{Configured: true, Targets: []Target{pluginsAre("a", operatorcr.True, contract.PluginError, "x", old), pluginsAre("b", operatorcr.True, contract.PluginError, "x", old)}}, map[string]string{
			Degraded:    "True KMSPlugins_PluginError a: x\nb: x",
			Upgradeable: "False PluginUnhealthy an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: a, b"}, false},
		{"an unhealthy plugin, for a moment", Input{Configured: true, Targets: []Target{pluginsAre("a", operatorcr.True, contract.PluginError, "x", start)}}, map[string]string{
			Degraded: "False AsExpected ", Upgradeable: "True AsExpected "}, false},
		{"a report that is stale, for long", Input{Configured: true, Targets: []Target{pluginsAre("a", operatorcr.Unknown, contract.ReporterStale, "x", old)}}, map[string]string{
			Degraded: "Unknown KMSPlugins_ReporterStale a: x", Upgradeable: "True AsExpected "}, false},

		// Several: once one has lasted, all count.
		{"True outweighs Unknown; reasons sorted, each once", Input{Configured: true, Configuration: "c", Targets: []Target{
			pluginsAre("a", operatorcr.Unknown, contract.ReporterStale, "x", old), pluginsAre("b", operatorcr.True, contract.PluginError, "y", start), pluginsAre("c", operatorcr.Unknown, contract.ReporterStale, "z", start), delivers("d", contract.Refused, "w")}}, map[string]string{
			Degraded:    "True Configuration_Invalid::Delivery_Refused::KMSPlugins_PluginError::KMSPlugins_ReporterStale c\na: x\nb: y\nc: z\nd: w",
			Upgradeable: "False PluginUnhealthy an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: b"}, false},
		{"Degraded for another reason, and a stale report", Input{Configured: true, Configuration: "c", Targets: []Target{pluginsAre("a", operatorcr.Unknown, contract.ReporterStale, "x", start)}}, map[string]string{
			Degraded: "True Configuration_Invalid::KMSPlugins_ReporterStale c\na: x", Upgradeable: "True AsExpected "}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := begin()
			tt.in.Now = start
			got, _ := s.judge(&tt.in)
			if tt.settled {
				if c := got[Degraded]; c.Status != operatorcr.False {
					t.Errorf("%s: %+v", never, c)
				}
				tt.in.Now = start.Add(inertia + 1)
				got, _ = s.judge(&tt.in)
			}
			if len(got) != 4 {
				t.Errorf("%d conditions: %v", len(got), got)
			}
			have := map[string]string{}
			for kind := range tt.want {
				have[kind] = got[kind].Status + " " + got[kind].Reason + " " + got[kind].Message
			}
			if d := cmp.Diff(tt.want, have); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestInertia(t *testing.T) {
	fails, unhealthy := delivers("a", contract.Refused, "x"), func(since time.Duration) Target {
		return pluginsAre("b", operatorcr.True, contract.PluginError, "y", start.Add(since))
	}
	type moment struct {
		at      time.Duration
		invalid string
		targets []Target
		want    string
		again   time.Duration // 0: never
	}
	bad, healthy := []Target{fails}, []Target{ok("a")}
	const no, yes = "False AsExpected", "True Delivery_Refused"
	for _, tt := range []struct {
		name  string
		story []moment
	}{
		{"not before, and at the instant", []moment{
			{0, "", bad, no, inertia + 1},
			{inertia - 1, "", bad, no, inertia + 1},
			{inertia, "", bad, no, inertia + 1},
			{inertia + 1, "", bad, yes, 0},
		}},
		{"a problem that recovers and returns starts a new inertia", []moment{
			{0, "", bad, no, inertia + 1},
			{time.Minute, "", healthy, no, 0},
			{time.Minute + time.Second, "", bad, no, 3*time.Minute + time.Second + 1},
			{inertia + 1, "", bad, no, 3*time.Minute + time.Second + 1},
			{3*time.Minute + time.Second + 1, "", bad, yes, 0},
		}},
		{"another reason of the same delivery continues the inertia", []moment{
			{0, "", bad, no, inertia + 1},
			{time.Minute, "", []Target{delivers("a", contract.RenewalFailed, "x")}, no, inertia + 1},
			{inertia + 1, "", []Target{delivers("a", contract.RenewalFailed, "x")}, "True Delivery_RenewalFailed", 0},
		}},
		{"another message is the same problem", []moment{
			{0, "", bad, no, inertia + 1},
			{time.Minute, "", []Target{delivers("a", contract.Refused, "another message")}, no, inertia + 1},
		}},
		{"a plugin's time is its condition's, also after a restart", []moment{
			{0, "", []Target{unhealthy(-time.Minute)}, no, time.Minute + 1},
			{time.Minute + 1, "", []Target{unhealthy(-time.Minute)}, "True KMSPlugins_PluginError", 0},
		}},
		{"one that has lasted makes the newer ones count", []moment{
			{0, "", bad, no, inertia + 1},
			{time.Minute, "", []Target{fails, unhealthy(time.Minute)}, no, inertia + 1},
			{inertia + 1, "", []Target{fails, unhealthy(time.Minute)}, "True Delivery_Refused::KMSPlugins_PluginError", 0},
		}},
		{"the next evaluation is for the first of several", []moment{
			{0, "", []Target{fails, unhealthy(-time.Minute)}, no, time.Minute + 1},
		}},
		{"a reported problem stays while any problem lasts", []moment{
			{0, "", bad, no, inertia + 1},
			{inertia + 1, "", bad, yes, 0},
			{3 * time.Minute, "c", bad, "True Configuration_Invalid::Delivery_Refused", 0},
			{4 * time.Minute, "c", healthy, "True Configuration_Invalid", 0},
			{4*time.Minute + 1, "", []Target{pluginsAre("b", operatorcr.Unknown, contract.ReporterStale, "y", start.Add(4*time.Minute))}, "Unknown KMSPlugins_ReporterStale", 0},
			{4*time.Minute + 2, "", bad, yes, 0},
			{5 * time.Minute, "", healthy, no, 0},
			{5*time.Minute + 1, "", bad, no, 7*time.Minute + 2},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := begin()
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

func TestAConditionsTimeMovesWithItsStatusAlone(t *testing.T) {
	s := begin()
	got, _ := s.at(1234567890, "") // conditions have whole seconds
	first := start.Add(time.Second)
	for kind, c := range got {
		if c.LastTransitionTime != first {
			t.Errorf("%s since %s", kind, c.LastTransitionTime)
		}
	}
	got, _ = s.at(time.Minute, "", delivers("a", contract.Progressing, "1 of 3"))
	if at := got[Progressing].LastTransitionTime; at != start.Add(time.Minute) {
		t.Errorf("it progresses since %s", at)
	}
	got, _ = s.at(2*time.Minute, "", delivers("a", contract.Removing, "ConfigMaps"))
	if at := got[Progressing].LastTransitionTime; at != start.Add(time.Minute) {
		t.Errorf("with another message it progresses since %s", at)
	}
	if at := got[Available].LastTransitionTime; at != first {
		t.Errorf("it is available since %s", at)
	}
	none := maps.Clone(s.standing)
	none[Available] = operatorcr.Condition{Type: Available, Status: operatorcr.True}
	s.standing = none
	got, _ = s.at(3*time.Minute, "")
	if at := got[Available].LastTransitionTime; at != start.Add(3*time.Minute) {
		t.Errorf("without a time it is available since %s", at)
	}
}

// Between an evaluation and the time that it returns, the result does not change.
func TestNothingChangesBeforeTheNextEvaluation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(2000) {
		d := rand.New(rand.NewPCG(seed, i))
		s, now := begin(), time.Duration(0)
		for range 6 {
			now += time.Duration(d.IntN(150)) * time.Second
			var targets []Target
			for _, name := range []string{"a", "b", "c"}[:d.IntN(4)] {
				t := ok(name)
				switch d.IntN(5) {
				case 0:
					t = delivers(name, []apiserver.Reason{contract.Refused, contract.RenewalFailed, contract.Progressing}[d.IntN(3)], "x")
				case 1, 2:
					t = pluginsAre(name, []string{operatorcr.True, operatorcr.Unknown}[d.IntN(2)], "R", "y", start.Add(now-time.Duration(d.IntN(130))*time.Second))
				}
				targets = append(targets, t)
			}
			invalid := []string{"", "", "c"}[d.IntN(3)]
			first, again := s.at(now, invalid, targets...)
			if !again.IsZero() && !again.After(start.Add(now)) {
				t.Fatalf("seeds %d, %d: at %s again at %s", seed, i, now, again.Sub(start))
			}
			before := []time.Duration{now + time.Duration(1+d.IntN(200))*time.Second}
			if !again.IsZero() {
				before = append(before, again.Sub(start)-1)
			}
			for _, at := range before {
				if !again.IsZero() && !start.Add(at).Before(again) {
					continue
				}
				copied := &history{since: maps.Clone(s.since), standing: s.standing}
				if later, _ := copied.at(at, invalid, targets...); !maps.Equal(later, first) {
					t.Fatalf("seeds %d, %d: evaluated at %s, next at %s, and at %s it differs:\n%s", seed, i, now, again.Sub(start), at, cmp.Diff(first, later))
				}
			}
			// And then it differs.
			if !again.IsZero() {
				copied := &history{since: maps.Clone(s.since), standing: s.standing}
				if then, _ := copied.at(again.Sub(start), invalid, targets...); then[Degraded].Status == operatorcr.False {
					t.Fatalf("seeds %d, %d: at %s nothing has changed", seed, i, again.Sub(start))
				}
			}
		}
	}
}

// Each reason must be valid in the schema of a condition.
func TestReasonsAreValidInACondition(t *testing.T) {
	s := begin()
	all := []Target{pluginsAre("a", operatorcr.True, contract.PluginError, "x", start.Add(-time.Hour)), delivers("b", contract.Refused, "y")}
	got, _ := s.at(0, "c", all...)
	for kind, c := range got {
		for _, part := range strings.Split(c.Reason, "::") {
			if part == "" || strings.ContainsFunc(part, func(r rune) bool { return !slices.Contains([]rune("_"), r) && (r < 'A' || r > 'z') }) {
				t.Errorf("%s has the reason %q", kind, c.Reason)
			}
		}
	}
}
