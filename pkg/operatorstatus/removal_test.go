package operatorstatus

import (
	"slices"
	"testing"
)

func TestRemoval(t *testing.T) {
	o := object(t, `
metadata: {resourceVersion: "42"}
status: {conditions: [{type: KMSHealthReporter_a}, {type: Other}, x, {type: KMSHealthReporter_b.example.com}]}
`)
	const head, remove = `[{"op":"replace","path":"/metadata/resourceVersion","value":"42"}`,
		`,{"op":"remove","path":"/status/conditions/`
	for want, conditionTypes := range map[string][]string{
		head + remove + `3"}]`:                  {"KMSHealthReporter_b.example.com"},
		head + remove + `3"}` + remove + `0"}]`: {"KMSHealthReporter_b.example.com", "KMSHealthReporter_a"},
		"":                                      {"KMSPluginsDegraded"},
	} {
		for range 2 { // in any order
			if got := string(Removal(o, conditionTypes)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			slices.Reverse(conditionTypes)
		}
	}
}
