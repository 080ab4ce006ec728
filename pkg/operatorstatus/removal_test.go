package operatorstatus

import (
	"slices"
	"testing"
)

func TestRemoval(t *testing.T) {
	const conditions = `
metadata: {resourceVersion: "42"}
status:
  conditions:
  - {type: KMSHealthReporter_a, message: "[]"}
  - {type: KMSPluginsDegraded}
  - {type: KMSHealthReporter_b.example.com, message: "[]"}
  - {type: KMSHealthReporter_c, message: "bad"}
`
	const head = `[{"op":"replace","path":"/metadata/resourceVersion","value":"42"}`
	const remove = `,{"op":"remove","path":"/status/conditions/`
	for want, nodes := range map[string][]string{
		head + remove + `2"}]`:                  {"b.example.com"},
		head + remove + `3"}` + remove + `0"}]`: {"a", "c"}, // removed from the end, so that earlier indexes stay valid
	} {
		r := Read(object(t, conditions))
		gone := slices.DeleteFunc(r.Reports, func(had Report) bool { return !slices.Contains(nodes, had.Node) })
		for range 2 { // in any order
			if got := string(Removal(r.Version, gone)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			slices.Reverse(gone)
		}
	}
}

func TestWithdrawalKeepsWhatAnotherManagerOwns(t *testing.T) {
	const conditions = `
metadata:
  resourceVersion: "42"
  managedFields:
  - {manager: ours, fieldsV1: {"f:status": {"f:conditions": {'k:{"type":"KMSPluginsDegraded"}': {}, 'k:{"type":"KMSHealthReporting"}': {}}}}}
  - {manager: other, fieldsV1: {"f:status": {"f:conditions": {'k:{"type":"KMSPluginsDegraded"}': {}}}}}
status:
  conditions: [{type: KMSPluginsDegraded}, {type: Other}, {type: KMSHealthReporting}]
`
	types := []string{"KMSPluginsDegraded", "KMSHealthReporting"}
	for other, want := range map[string]string{
		"other": `[{"op":"replace","path":"/metadata/resourceVersion","value":"42"},{"op":"remove","path":"/status/conditions/2"}]`,
		"": `[{"op":"replace","path":"/metadata/resourceVersion","value":"42"},{"op":"remove","path":"/status/conditions/2"},` +
			`{"op":"remove","path":"/status/conditions/0"}]`,
	} {
		isOther := func(manager string) bool { return manager == other }
		if got := string(Withdrawal(object(t, conditions), types, isOther)); got != want {
			t.Errorf("another manager %q: %s, want %s", other, got, want)
		}
	}
	if got := Withdrawal(object(t, conditions), []string{"KMSWriteKeyAgreed"}, func(string) bool { return false }); got != nil {
		t.Errorf("nothing is left: %s", got)
	}
}
