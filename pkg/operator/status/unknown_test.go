package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestTargetWithUnknownStateIsNotDegraded(t *testing.T) {
	s := begin()
	s.at(0, "", Target{Name: "a"})
	got, _ := s.at(inertia+1, "", Target{Name: "a"})
	if c := got[Degraded]; c.Status != operatorcr.False {
		t.Errorf("%+v", c)
	}
}

// A process that has evaluated no roll-up yet does not know whether a plugin that was
// unhealthy still is.
func TestTargetThatWasNotEvaluatedKeepsWhatAnEarlierProcessReported(t *testing.T) {
	unhealthy := pluginsAre("a", operatorcr.True, contract.PluginError, "x", start.Add(-time.Hour))
	stale := pluginsAre("a", operatorcr.Unknown, contract.ReporterStale, "x", start.Add(-time.Hour))
	unknown, unreadable, off := ok("a"), delivers("a", contract.SourceUnreadable, "nodes: forbidden"), ok("a")
	unknown.Result, unreadable.Result, off.Result = nil, nil, nil
	unknown.Unevaluated, unreadable.Unevaluated = true, true
	for name, c := range map[string]struct {
		began                 time.Duration
		before, now           Target
		degraded, upgradeable string
	}{
		"it is not known":              {time.Minute, unhealthy, unknown, "True KMSPlugins_PluginError", "False PluginUnhealthy"},
		"its sources are not readable": {time.Minute, unhealthy, unreadable, "True Delivery_SourceUnreadable", "False PluginUnhealthy"},
		"Unknown before":               {time.Minute, stale, unknown, "Unknown KMSPlugins_ReporterStale", "True AsExpected"},
		"it is evaluated":              {time.Minute, unhealthy, ok("a"), "False AsExpected", "True AsExpected"},
		"KMS is off":                   {time.Minute, unhealthy, off, "False AsExpected", "True AsExpected"},
		"this process reported it":     {-time.Minute, unhealthy, unknown, "False AsExpected", "True AsExpected"},
		"no problem before":            {time.Minute, ok("a"), unknown, "False AsExpected", "True AsExpected"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin()
			before, _ := s.at(0, "", c.before)
			got, _ := s.judge(&Input{Now: start.Add(2 * time.Minute), Began: start.Add(c.began), Configured: true, Targets: []Target{c.now, ok("b")}})
			if have := got[Degraded].Status + " " + got[Degraded].Reason; have != c.degraded {
				t.Errorf("Degraded %s, want %s", have, c.degraded)
			}
			if have := got[Upgradeable].Status + " " + got[Upgradeable].Reason; have != c.upgradeable {
				t.Errorf("Upgradeable %s, want %s", have, c.upgradeable)
			}
			if name == "it is not known" {
				if d := cmp.Diff(before[Degraded], got[Degraded]); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// Upgradeable names no API server that has recovered, while another is not known yet.
func TestUpgradeableNamesWhatIsNotKnown(t *testing.T) {
	s := begin()
	s.at(0, "", pluginsAre("a", operatorcr.True, contract.PluginError, "x", start.Add(-time.Hour)), ok("b"))
	unknown := ok("b")
	unknown.Result, unknown.Unevaluated = nil, true
	got, _ := s.judge(&Input{Now: start.Add(2 * time.Minute), Began: start.Add(time.Minute), Configured: true, Targets: []Target{ok("a"), unknown}})
	want := "an upgrade restarts API servers, which cannot read Secrets while their KMS plugin is unhealthy: b (not known since the operator's restart)"
	if c := got[Upgradeable]; c.Status != operatorcr.False || c.Message != want {
		t.Errorf("%+v", c)
	}
}
