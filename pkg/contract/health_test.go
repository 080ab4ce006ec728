package contract

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

func TestFieldManagersAreBoundedAndDiffer(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	for node, want := range map[string]string{ // field managers own what they wrote, so these names must not change
		"master-0": "kms-health-reporter-master-0",
		a(108):     "kms-health-reporter-" + a(108),
		a(109):     "kms-health-reporter-" + a(91) + "-8a36de3051bf9a09",
	} {
		if got := ConditionManager(node); got != want || len(got) > 128 {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if ConditionManager(a(200)) == ConditionManager(a(200)+"b") {
		t.Error("two nodes have one manager")
	}
	start := fieldManagerPrefix + a(91) + "-"
	for manager, want := range map[string]bool{
		ConditionManager(a(109)): true, start + strings.Repeat("0", 16): true, start + "0": false, strings.Repeat("b", 128): false,
	} {
		if WritesFor(manager, a(109)) != want {
			t.Errorf("%s writes for the node: %t", manager, !want)
		}
	}
}

func TestNodeOfConditionType(t *testing.T) {
	for conditionType, want := range map[string]string{
		"KMSHealthReporter_master-0": "master-0",
		"KMSHealthReporter_":         "",
		"KMSPluginsDegraded":         "",
	} {
		if got, ok := NodeOf(conditionType); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", conditionType, got, ok)
		}
	}
	if got, _ := NodeOf(ConditionType("a.b")); got != "a.b" {
		t.Error(got)
	}
}

func TestFreshness(t *testing.T) {
	const bound = StaleIntervals * time.Second
	checked := time.Now()
	suspended := func(d time.Duration) time.Time { return wait.Suspended(checked, d) }
	if d := suspended(time.Hour).Sub(checked); d != 0 {
		t.Fatalf("the monotonic clock advanced by %s", d)
	}
	for name, tt := range map[string]struct {
		interval      time.Duration
		now           time.Time
		stale, skewed bool
	}{
		"just now":                         {time.Second, checked, false, false},
		"the last instant":                 {time.Second, checked.Add(bound), false, false},
		"after it":                         {time.Second, checked.Add(bound + 1), true, false},
		"default interval":                 {0, checked.Add(StaleIntervals * DefaultInterval), false, false},
		"after it, default interval":       {0, checked.Add(StaleIntervals*DefaultInterval + 1), true, false},
		"an interval ahead":                {time.Minute, checked.Add(-time.Minute), false, false},
		"over an interval ahead":           {time.Minute, checked.Add(-time.Minute - 1), false, true},
		"far ahead is not fresh for ever":  {time.Second, checked.Add(-time.Hour), false, true},
		"suspended until the last instant": {time.Second, suspended(bound), false, false},
		"suspended for longer":             {time.Second, suspended(bound + 1), true, false},
		"suspended for an hour":            {time.Second, suspended(time.Hour), true, false},
		"the wall clock was set back":      {time.Second, suspended(-time.Hour), false, true},
	} {
		for _, at := range []time.Time{checked, checked.Round(0)} { // the second one is as from a message
			e := Entry{LastChecked: at, Interval: tt.interval}
			if e.Stale(tt.now) != tt.stale || e.Skewed(tt.now) != tt.skewed {
				t.Errorf("%s: stale %t, skewed %t", name, e.Stale(tt.now), e.Skewed(tt.now))
			}
		}
	}
}

// The values are part of the contract. Nothing else pins them.
func TestIntervals(t *testing.T) {
	if DefaultInterval != 30*time.Second || MinInterval != time.Second || MaxInterval != time.Hour || StaleIntervals != 4 {
		t.Error(MinInterval, DefaultInterval, MaxInterval, StaleIntervals)
	}
}
