package operatorcr

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
	const element = `keyID: "1", status: Healthy, lastCheckedTime: "2026-05-08T11:59:55Z"}`
	const reports = `
    healthReports:
    - {nodeName: a, ` + element + `
    - {nodeName: b, ` + element + `
    - {nodeName: a, ` + element + `
`
	const typed = "metadata: {resourceVersion: \"42\"}\nstatus:\n  encryptionStatus:" + reports
	const siblings = typed + "    preflight: {}\n"
	const oauth = "metadata: {resourceVersion: \"42\"}\nstatus:\n  oauthAPIServer:\n    encryptionStatus:\n      healthReports:\n      - {nodeName: a, " + element + "\n"
	const version = `[{"op":"test","path":"/metadata/resourceVersion","value":"42"}`
	a, b := Ref{"a", FormTyped}, Ref{"b", FormTyped}
	for _, tt := range []struct {
		name, object string
		gone         []Ref
		want         string
	}{
		{"a condition", conditions, []Ref{{"b.example.com", FormCondition}},
			`[{"op":"test","path":"/status/conditions/2/type","value":"KMSHealthReporter_b.example.com"},{"op":"test","path":"/status/conditions/2/message","value":"[]"},{"op":"remove","path":"/status/conditions/2"}]`},
		{"conditions from the end, so that no place moves", conditions, []Ref{{"a", FormCondition}, {"c", FormCondition}},
			`[{"op":"test","path":"/status/conditions/3/type","value":"KMSHealthReporter_c"},{"op":"test","path":"/status/conditions/3/message","value":"bad"},{"op":"remove","path":"/status/conditions/3"}` +
				`,{"op":"test","path":"/status/conditions/0/type","value":"KMSHealthReporter_a"},{"op":"test","path":"/status/conditions/0/message","value":"[]"},{"op":"remove","path":"/status/conditions/0"}]`},
		{"a condition without a message", "status:\n  conditions:\n  - {type: KMSHealthReporter_a}\n", []Ref{{"a", FormCondition}},
			`[{"op":"test","path":"/status/conditions/0/type","value":"KMSHealthReporter_a"},{"op":"remove","path":"/status/conditions/0"}]`},
		{"one element of many", typed, []Ref{b},
			`[{"op":"test","path":"/status/encryptionStatus/healthReports/1/nodeName","value":"b"},{"op":"test","path":"/status/encryptionStatus/healthReports/1/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/encryptionStatus/healthReports/1"}]`},
		{"all elements of a node", typed, []Ref{a},
			`[{"op":"test","path":"/status/encryptionStatus/healthReports/2/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/2/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/encryptionStatus/healthReports/2"}` +
				`,{"op":"test","path":"/status/encryptionStatus/healthReports/0/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/0/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/encryptionStatus/healthReports/0"}]`},
		{"all elements: the parent is removed", typed, []Ref{a, b}, version +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/2/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/2/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/1/nodeName","value":"b"},{"op":"test","path":"/status/encryptionStatus/healthReports/1/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/0/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/0/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"remove","path":"/status/encryptionStatus"}]`},
		{"all elements: only the list is removed if the parent has other fields", siblings, []Ref{b, a}, version +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/2/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/2/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/1/nodeName","value":"b"},{"op":"test","path":"/status/encryptionStatus/healthReports/1/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"test","path":"/status/encryptionStatus/healthReports/0/nodeName","value":"a"},{"op":"test","path":"/status/encryptionStatus/healthReports/0/lastCheckedTime","value":"2026-05-08T11:59:55Z"}` +
			`,{"op":"remove","path":"/status/encryptionStatus/healthReports"}]`},
		{"authentications", oauth, []Ref{a}, version +
			`,{"op":"test","path":"/status/oauthAPIServer/encryptionStatus/healthReports/0/nodeName","value":"a"},{"op":"test","path":"/status/oauthAPIServer/encryptionStatus/healthReports/0/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/oauthAPIServer/encryptionStatus"}]`},
		{"both forms", "metadata: {resourceVersion: \"42\"}\nstatus:\n  conditions:\n  - {type: KMSHealthReporter_b, message: '[]'}\n  encryptionStatus:" + reports, []Ref{b, {"b", FormCondition}},
			`[{"op":"test","path":"/status/conditions/0/type","value":"KMSHealthReporter_b"},{"op":"test","path":"/status/conditions/0/message","value":"[]"},{"op":"remove","path":"/status/conditions/0"}` +
				`,{"op":"test","path":"/status/encryptionStatus/healthReports/1/nodeName","value":"b"},{"op":"test","path":"/status/encryptionStatus/healthReports/1/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/encryptionStatus/healthReports/1"}]`},
		{"an element without a node keeps the list", "metadata: {resourceVersion: \"42\"}\nstatus:\n  encryptionStatus:\n    healthReports:\n    - {}\n    - {nodeName: b, " + element + "\n", []Ref{b},
			`[{"op":"test","path":"/status/encryptionStatus/healthReports/1/nodeName","value":"b"},{"op":"test","path":"/status/encryptionStatus/healthReports/1/lastCheckedTime","value":"2026-05-08T11:59:55Z"},{"op":"remove","path":"/status/encryptionStatus/healthReports/1"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Read(object(t, tt.object))
			var gone []Report
			for _, ref := range tt.gone {
				at := slices.IndexFunc(r.Reports, func(had Report) bool { return had.Ref() == ref })
				if at < 0 {
					t.Fatalf("%v was not read", ref)
				}
				gone = append(gone, r.Reports[at])
			}
			if got := string(r.Removal(gone)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			slices.Reverse(gone)
			if got := string(r.Removal(gone)); got != tt.want {
				t.Errorf("in another order: got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
