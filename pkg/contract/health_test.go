package contract

import (
	"strings"
	"testing"
	"time"
)

func TestFieldManagersAreBoundedAndDiffer(t *testing.T) {
	long := strings.Repeat("a", 200)
	seen := map[string]string{}
	for _, node := range []string{
		"n", "master-0.example.com", long, long + "b", strings.Repeat("a", 108), strings.Repeat("a", 109),
	} {
		manager := ConditionManager(node)
		if len(manager) > 128 {
			t.Errorf("%d bytes: %s", len(manager), manager)
		}
		if other, used := seen[manager]; used {
			t.Errorf("%s is the manager of %q and of %q", manager, node, other)
		}
		seen[manager] = node
	}
	for node, want := range map[string]string{ // field managers own what they wrote, so these names must not change
		"master-0":               "kms-health-reporter-master-0",
		strings.Repeat("a", 108): "kms-health-reporter-" + strings.Repeat("a", 108),
		strings.Repeat("a", 109): "kms-health-reporter-" + strings.Repeat("a", 91) + "-8a36de3051bf9a09",
	} {
		if got := ConditionManager(node); got != want {
			t.Errorf("%s, want %s", got, want)
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

// freshness is whether an entry is valid.
type freshness string

const fresh, stale, skewed freshness = "fresh", "stale", "skewed"

func (e Entry) freshness(now time.Time) freshness {
	switch {
	case e.Stale(now):
		return stale
	case e.Skewed(now):
		return skewed
	}
	return fresh
}

func TestFreshness(t *testing.T) {
	at := noon.Add
	for name, tt := range map[string]struct {
		interval time.Duration
		now      time.Time
		want     freshness
	}{
		"just now":                        {time.Second, noon, fresh},
		"the last instant":                {time.Second, at(StaleIntervals * time.Second), fresh},
		"after it":                        {time.Second, at(StaleIntervals*time.Second + 1), stale},
		"default interval":                {0, at(StaleIntervals * DefaultInterval), fresh},
		"after it, default interval":      {0, at(StaleIntervals*DefaultInterval + 1), stale},
		"an interval ahead":               {time.Minute, at(-time.Minute), fresh},
		"over an interval ahead":          {time.Minute, at(-time.Minute - 1), skewed},
		"far ahead is not fresh for ever": {time.Second, at(-time.Hour), skewed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Entry{LastChecked: noon, Interval: tt.interval}).freshness(tt.now); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestStaleIntervals pins the value, which is part of the contract. Nothing else does.
func TestStaleIntervals(t *testing.T) {
	if got, want := (Entry{
		LastChecked: noon, Interval: 10 * time.Second,
	}).StaleAt(), noon.Add(40*time.Second); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
