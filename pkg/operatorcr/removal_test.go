package operatorcr

import (
	"slices"
	"testing"
)

func TestRemoval(t *testing.T) {
	const conditions = `
status:
  conditions:
  - {type: KMSHealthReporter_a, message: "[]"}
  - {type: KMSPluginsDegraded}
  - {type: KMSHealthReporter_b.example.com, message: "[]"}
  - {type: KMSHealthReporter_c, message: "bad"}
  - {type: KMSHealthReporter_d}
`
	for _, tt := range []struct {
		name  string
		nodes []string
		want  string
	}{
		{"one", []string{"b.example.com"},
			`[{"op":"test","path":"/status/conditions/2/type","value":"KMSHealthReporter_b.example.com"},{"op":"test",` +
				`"path":"/status/conditions/2/message","value":"[]"},{"op":"remove","path":"/status/conditions/2"}]`},
		{"several, from the end, so that no place moves", []string{"a", "c"},
			`[{"op":"test","path":"/status/conditions/3/type","value":"KMSHealthReporter_c"},{"op":"test",` +
				`"path":"/status/conditions/3/message","value":"bad"},{"op":"remove","path":"/status/conditions/3"}` +
				`,{"op":"test","path":"/status/conditions/0/type","value":"KMSHealthReporter_a"},{"op":"test",` +
				`"path":"/status/conditions/0/message","value":"[]"},{"op":"remove","path":"/status/conditions/0"}]`},
		{"one without a message", []string{"d"},
			`[{"op":"test","path":"/status/conditions/4/type","value":"KMSHealthReporter_d"},{"op":"remove",` +
				`"path":"/status/conditions/4"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Read(object(t, conditions))
			gone := slices.DeleteFunc(r.Reports, func(had Report) bool { return !slices.Contains(tt.nodes, had.Node) })
			if len(gone) != len(tt.nodes) {
				t.Fatalf("%v were not all read", tt.nodes)
			}
			if got := string(Removal(gone)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			slices.Reverse(gone)
			if got := string(Removal(gone)); got != tt.want {
				t.Errorf("in another order: got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
