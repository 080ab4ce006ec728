package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

var (
	healthy = opinion{ok: true}
	fails   = opinion{verdict: "failed", why: "x"}
)

func TestOnlyListedDifferencesAgree(t *testing.T) {
	for _, c := range []struct {
		name      string
		unhealthy bool
		differs   int
		v         verdicts
		want      string // empty: an error
	}{
		{"all healthy", false, 0, verdicts{healthy, 1, healthy, healthy}, "same"},
		{"all unhealthy", true, 0, verdicts{fails, 1, fails, fails}, "same"},
		{"unhealthy, and the plugin cannot be asked", true, 0, verdicts{fails, 0, fails, fails}, "same"},
		{"healthy, by an answer from before the fault", false, 0, verdicts{healthy, 0, healthy, healthy}, ""},
		{"we alone call it unhealthy", false, 0, verdicts{healthy, 1, fails, fails}, ""},
		{"we alone call it healthy", true, 0, verdicts{fails, 1, healthy, healthy}, ""},
		{"RoundTrip alone calls it unhealthy", false, 0, verdicts{healthy, 1, healthy, fails}, ""},
		{"RoundTrip alone calls it healthy", true, 0, verdicts{fails, 1, fails, healthy}, ""},
		{"kube-apiserver does not see the fault any more", true, 0, verdicts{healthy, 1, healthy, healthy}, ""},
		{"kube-apiserver sees what was no fault", false, 0, verdicts{fails, 1, fails, fails}, ""},

		{"encrypt is not tried by kube-apiserver", false, notTried, verdicts{healthy, 1, healthy, fails}, "2"},
		{"encrypt is tried by kube-apiserver", true, notTried, verdicts{fails, 1, healthy, fails}, "2"},
		{"encrypt is not tried by anyone", false, notTried, verdicts{healthy, 1, healthy, healthy}, ""},
		{"encrypt spoils our Status", false, notTried, verdicts{healthy, 1, fails, fails}, ""},

		{"too large for us", false, tooLarge, verdicts{healthy, 1, fails, fails}, "3"},
		{"too large for both", true, tooLarge, verdicts{fails, 1, fails, fails}, ""},
		{"too large for none", false, tooLarge, verdicts{healthy, 1, healthy, healthy}, ""},

		{"the lag is waited out, so no row may have it", false, 1, verdicts{healthy, 1, fails, fails}, ""},
		{"a number that is not listed", false, 4, verdicts{healthy, 1, fails, fails}, ""},
	} {
		got, err := compare(fault{unhealthy: c.unhealthy, differs: c.differs}, c.v)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// A fault that the development plugin learns must be compared too.
func TestEveryFaultOfThePluginIsCompared(t *testing.T) {
	var compared []string
	names := map[string]bool{}
	for _, f := range faults {
		for _, line := range slices.Concat(f.start, f.steps) {
			compared = append(compared, strings.Fields(line)[0])
		}
		if names[f.name] {
			t.Errorf("two faults are called %q", f.name)
		}
		names[f.name] = true
	}
	for _, kind := range kmsplugin.Faults() {
		if !slices.Contains(compared, kind.Name) {
			t.Errorf("no row has the plugin's fault %q", kind.Name)
		}
	}
}
