package check

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
)

func TestOutcomeOfOneProbe(t *testing.T) {
	plugins := []v1alpha1.Plugin{{KeyID: "1", Endpoint: "unix:///1"}, {KeyID: "2", Endpoint: "unix:///2"}}
	one := health.Entry{KeyID: "1", Status: health.Healthy}
	two := health.Entry{KeyID: "2", Status: health.Healthy}
	unhealthy := health.Entry{KeyID: "1", Status: health.Error}
	for name, c := range map[string]struct {
		plugins []v1alpha1.Plugin
		entries []health.Entry
		outcome Outcome
		missing string // the plugins that are named
	}{
		"all healthy":                 {plugins, []health.Entry{two, one}, Healthy, ""},
		"one not observed":            {plugins, []health.Entry{one}, NotObserved, "2"},
		"none observed":               {plugins, nil, NotObserved, "12"},
		"one unhealthy":               {plugins, []health.Entry{unhealthy, two}, NotHealthy, ""},
		"one unhealthy, one not seen": {plugins, []health.Entry{unhealthy}, NotHealthy, "2"},
		"no plugins":                  {nil, nil, NotObserved, ""},
	} {
		lines := notObserved(c.plugins, c.entries, nil)
		if got := outcome(c.entries, lines); got != c.outcome {
			t.Errorf("%s: outcome %d, want %d", name, got, c.outcome)
		}
		for _, p := range c.plugins {
			named := strings.Contains(strings.Join(lines, "\n"), p.Endpoint)
			if named != strings.Contains(c.missing, p.KeyID) {
				t.Errorf("%s: %q", name, lines)
			}
		}
	}
}
